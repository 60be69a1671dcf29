"""What is called inside of a `summon_full_params` block, as the traces have it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.analysis.variables import Function, ancestors
from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.trace import Called, Compiled, Fsdp1Used, GradMode, Trace, Wrapped

AUTOCAST = {
    "torch.autocast": ("device_type", "dtype", "enabled"),
    "torch.amp.autocast": ("device_type", "dtype", "enabled"),
    "torch.amp.autocast_mode.autocast": ("device_type", "dtype", "enabled"),
    "torch.cuda.amp.autocast": ("enabled", "dtype"),
    "torch.cuda.amp.autocast_mode.autocast": ("enabled", "dtype"),
}

LOWER = (
    "what is called inside of `summon_full_params` computes in `param_dtype`, as in training (FSDP1: "
    "in full precision, where it is not wrapped itself)"
)
LOWER_DETAIL = (
    "Under autocast products of matrices are the same; what embeddings give and residuals add up to is "
    "rounded, as in the model's own forward. In a translation model of seven blocks that is 0.1 % of "
    "the largest logit with float16 and 1.5 % with bfloat16, where one of four greedy translations "
    "went another way. Nothing is trained on it."
)
DAMAGE = (
    "weights stay as they were after parts were called inside of `summon_full_params` (FSDP1 spoils "
    "them)"
)
DAMAGE_DETAIL = (
    "FSDP1 shards a part again as soon as it has run, and at the end of the block takes what is left "
    "for the whole and writes it back: on all ranks but the first the weights of the part are wrong from "
    "then on, unless `writeback=False` is given. So a run of before that trains on is not to be compared "
    "with."
)


@dataclass
class Calls:
    """The modules that are entered in a block, in every trace that reaches it."""

    migration: Migration
    source: Source
    call: cst.Call  # of `summon_full_params`

    def entered_before(self) -> bool:
        """Whether the model has certainly been called before the block is reached, where it is
        wrapped.
        """
        reached = False
        for trace, event in self._uses_of_call():
            outer = {wrapped.module for wrapped in trace.before(event, Wrapped)}
            if not outer:
                continue
            reached = True
            outer |= {c.result for c in trace.before(event, Compiled) if c.module in outer}
            calls = trace.before(event, Called)
            if not any(c.module in outer and not c.summoned and c.inside is None for c in calls):
                return False
        return reached

    def without_gradients(self) -> bool:
        """Whether autograd certainly records nothing of what is called."""
        found = [called for _, _, called in self._calls_inside()]
        return bool(found) and all(
            called.grad in (GradMode.OFF, GradMode.INFERENCE) for called in found
        )

    def of_units(self, *, recurse: bool) -> bool:
        """Whether something is called that FSDP1 wraps itself, and that the block is about."""
        for trace, event, called in self._calls_inside():
            for wrapped in trace.before(event, Wrapped):
                modules = {wrapped.module, *(wrapped.units or ())}
                if not recurse:
                    modules = {wrapped.module} & {event.module}
                if called.module in modules:
                    return True
        return False

    def under_autocast(self) -> bool:
        """Whether autocast is on where something is called that computes in a lower precision.

        (Without it FSDP1 fails where what is not wrapped itself hands over to what is.)
        """
        for context in self._contexts():
            names = AUTOCAST.get(self.migration.symbol(context.func))
            if names is None:
                continue
            enabled = arguments(context, names)[0].get("enabled")
            if enabled is None or is_constant(enabled.value, "True"):
                return True
            if not is_constant(enabled.value, "False") and self.of_units(recurse=True):
                return True
        return False

    def note_precision(self) -> None:
        self.migration.note(LOWER, self.source, self.call, detail=LOWER_DETAIL)

    def note_damage(self, options: dict[str, bool]) -> None:
        """Say where FSDP1 writes back what it does not have any more."""
        if options["writeback"] and self.of_units(recurse=options["recurse"]):
            self.migration.note(DAMAGE, self.source, self.call, detail=DAMAGE_DETAIL)

    def _contexts(self) -> Iterator[cst.Call]:
        """The contexts around the call in its function, those of its own `with` among them."""
        for parent in ancestors(self.source, self.call):
            if isinstance(parent, Function):
                return
            if isinstance(parent, cst.With):
                for item in parent.items:
                    if isinstance(item.item, cst.Call):
                        yield item.item

    def _uses_of_call(self) -> Iterator[tuple[Trace, Fsdp1Used]]:
        for trace in self.migration.program.traces:
            for event in trace.of(Fsdp1Used):
                if isinstance(event.site, NodeSite) and event.site.node is self.call:
                    yield trace, event

    def _calls_inside(self) -> Iterator[tuple[Trace, Fsdp1Used, Called]]:
        for trace, event in self._uses_of_call():
            for other in trace.after(event, Called, Fsdp1Used):
                if isinstance(other, Called) and other.summoned:
                    yield trace, event, other
                elif not isinstance(other, Fsdp1Used) or other.api == "summon_full_params":
                    break

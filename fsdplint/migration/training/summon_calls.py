"""The calls of modules in a `summon_full_params` block, according to the traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.enclosing import Function, ancestors
from fsdplint.trace import Called, Compiled, Fsdp1Used, GradMode, Trace, Wrapped

AUTOCAST = {
    "torch.autocast": ("device_type", "dtype", "enabled"),
    "torch.amp.autocast": ("device_type", "dtype", "enabled"),
    "torch.amp.autocast_mode.autocast": ("device_type", "dtype", "enabled"),
    "torch.cuda.amp.autocast": ("enabled", "dtype"),
    "torch.cuda.amp.autocast_mode.autocast": ("enabled", "dtype"),
}

LOWER = (
    "modules that are called in `summon_full_params` compute in `param_dtype`, as in training (FSDP1: "
    "in full precision if they are not wrapped themselves)"
)
LOWER_DETAIL = (
    "Under autocast, matrix products are the same. Outputs of embeddings and sums of residuals are "
    "rounded, as in the model's own forward. In a translation model of seven blocks the difference is "
    "0.1 % of the largest logit with float16 and 1.5 % with bfloat16, where one of four greedy "
    "translations changed. Training does not use these outputs."
)
GENERATES = (
    "`generate` in `summon_full_params` computes in `param_dtype`, as in training (FSDP1: in full "
    "precision in the parts that are not wrapped themselves)"
)
GENERATES_DETAIL = (
    "Other tokens may be drawn. Look at what the program does with them before you use "
    "`--unsafe-fixes`."
)
INFERS_DETAIL = (
    "The outputs are rounded, as in the model's own forward. Look at what the program does with them "
    "before you use `--unsafe-fixes`."
)
OFF_DETAIL = (
    "The program turns mixed precision on nowhere, so nothing changes as long as it does not."
)
DAMAGE = "weights do not change when parts are called in `summon_full_params` (FSDP1 corrupts them)"
DAMAGE_DETAIL = (
    "FSDP1 reshards a part as soon as it has run. At the end of the block it takes the remaining memory "
    "for the whole parameter and writes it back, so on all ranks but the first the weights of the part "
    "are wrong afterwards, unless `writeback=False` is set. Do not compare with a run of FSDP1 that "
    "continues to train after that."
)


@dataclass
class Calls:
    """The modules that a block calls, in every trace that reaches it."""

    migration: Migration
    source: Source
    call: cst.Call  # of `summon_full_params`
    blocks: Sequence[tuple[Source, cst.With]]  # that enter it

    def modules(self) -> set[str]:
        """The modules whose parameters the call gathers, in all traces."""
        return {event.module for _, event in self._uses_of_call() if event.module is not None}

    def entered_before(self) -> bool:
        """Whether every run that wraps the model calls it before it reaches the block."""
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

    def begins_with_model(self) -> bool:
        """Whether the first module that a block calls is the whole model, in every run."""
        first: dict[tuple[int, int], bool] = {}
        for trace, event, called in self._calls_inside():
            if called.via == "call":
                inner = {x.inner for x in trace.before(event, Wrapped) if x.module == event.module}
                whole = called.module in inner or called.module == event.module
                first.setdefault((id(trace), event.index), whole)
        reached = {(id(trace), event.index) for trace, event in self._uses_of_call()}
        return bool(reached) and reached == set(first) and all(first.values())

    def only_of_wrapper(self) -> bool:
        """Whether a block calls the wrapped model and, apart from what this runs, no part of it.

        Such a call gathers the parameters itself and computes as any other, also with FSDP1.
        """
        reached = {(id(trace), event.index) for trace, event in self._uses_of_call()}
        called_in = set()
        for trace, event, called in self._calls_inside():
            if called.module == event.module and called.via == "call":
                called_in.add((id(trace), event.index))
            elif called.inside is None or not self._is_inside(trace, event, called):
                return False
        return bool(reached) and reached == called_in

    def _is_inside(self, trace: Trace, event: Fsdp1Used, called: Called) -> bool:
        """Whether a call of the wrapped model runs another call."""
        calls = {one.index: one for one in trace.after(event, Called)}
        one: Called | None = called
        while one is not None:
            if one.module == event.module and one.via == "call":
                return True
            one = calls.get(one.inside) if one.inside is not None else None
        return False

    def without_gradients(self, *, only_generates: bool) -> bool:
        """Whether all calls in the block certainly run without autograd.

        only_generates: whether the block has no other calls than `generate`. Models of libraries have
            the method of Transformers, which turns autograd off.
        """
        found = [(id(trace), called) for trace, _, called in self._calls_inside()]
        if not found:
            return only_generates
        # A decorator may turn autograd off for the body of a method, which calls modules.
        entered = {(trace, called.inside) for trace, called in found}
        return all(
            called.grad in (GradMode.OFF, GradMode.INFERENCE)
            for trace, called in found
            if called.via == "call" or (trace, called.index) not in entered
        )

    def of_units(self, *, recurse: bool) -> bool:
        """Whether the block calls a module that FSDP1 wraps as a unit and that the block unshards."""
        for trace, event, called in self._calls_inside():
            for wrapped in trace.before(event, Wrapped):
                modules = {wrapped.module, *(wrapped.units or ())}
                if not recurse:
                    modules = {wrapped.module} & {event.module}
                if called.module in modules:
                    return True
        return False

    def may_be_of_gathered(self, *, recurse: bool) -> bool:
        """Whether the block may call a wrapped module whose parameters it gathers.

        With `recurse=False` those are the parameters of the model that are in no unit, and units work
        once the whole model has run.
        """
        found = False
        for trace, event, called in self._calls_inside():
            found = True
            if not recurse and called.via != "call":
                continue
            for wrapped in trace.before(event, Wrapped):
                if recurse:
                    modules = {wrapped.module, wrapped.inner, *(wrapped.units or ())}
                else:
                    own = wrapped.module == event.module
                    modules = {wrapped.module, wrapped.inner} if own else set()
                if called.module in modules:
                    return True
        return not found or (not recurse and not self.entered_before())

    def under_autocast(self) -> bool:
        """Whether autocast is on around calls that compute in a lower precision.

        Without it, FSDP1 fails where a module that is not wrapped passes its output to a unit.
        """
        return all(any(map(self._is_autocast, self._contexts(*one))) for one in self.blocks)

    def _is_autocast(self, context: cst.Call) -> bool:
        """Whether a context turns autocast on, as far as it matters for the calls in the blocks."""
        names = AUTOCAST.get(self.migration.symbol(context.func))
        if names is None:
            return False
        enabled = arguments(context, names)[0].get("enabled")
        if enabled is None or is_constant(enabled.value, "True"):
            return True
        return not is_constant(enabled.value, "False") and self.of_units(recurse=True)

    def note_precision(self) -> None:
        self.migration.note(LOWER, self.source, self.call, detail=LOWER_DETAIL)

    def note_lower_precision(self, *, generates: bool, unsafe: bool) -> None:
        """Note that the model computes in another precision, which may change what follows.

        unsafe: whether the program may turn mixed precision on.
        """
        text, detail = (GENERATES, GENERATES_DETAIL) if generates else (LOWER, INFERS_DETAIL)
        if not unsafe:
            detail = OFF_DETAIL
        self.migration.note(text, self.source, self.call, detail=detail, unsafe=unsafe)

    def note_damage(self, options: dict[str, bool]) -> None:
        """Add a note if FSDP1 writes back parameters that it has already resharded."""
        if options["writeback"] and self.of_units(recurse=options["recurse"]):
            self.migration.note(DAMAGE, self.source, self.call, detail=DAMAGE_DETAIL)

    def _contexts(self, source: Source, block: cst.With) -> Iterator[cst.Call]:
        """The contexts of a block and those around it in its function."""
        for parent in (block, *ancestors(source, block)):
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

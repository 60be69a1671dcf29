"""FSDP704: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import names
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, Guard, GuardKind, ModuleMoved, StateLoaded, Trace
from fsdplint.trace.predicates import negated
from fsdplint.trace.queries.common import class_name


class BuffersLeftGarbage(Rule):
    """Buffers of a model that was built on the meta device are never initialised.

    ## What it does
    Finds buffers that `to_empty()` allocated and that nothing has written to by the end of the first
    forward: frequencies of rotary embeddings, masks, running statistics.

    Buffers that are loaded, set by the program or computed in the forward are not reported. A check without
    a run finds buffers with `persistent=False` that a forward reads. It also finds those that are
    initialised only if no checkpoint is loaded, so that a resumed run computes with garbage.

    ## Why is this bad?
    `to_empty()` allocates memory and writes nothing to it. `reset_parameters()` sets parameters,
    and a checkpoint has no buffers that were registered with `persistent=False`. So the forward computes
    with uninitialised memory: in one run -1.6e-18 and 3.1e-41 instead of frequencies between 0 and 1, in
    others NaN. The values differ on each rank and in each run. There is no error.

    ## Since
    Always (`to_empty`: torch 1.13).

    ## References
    - https://docs.pytorch.org/docs/stable/meta.html (`to_empty`)
    - huggingface/transformers#45902.
    """

    code = "FSDP704"
    name = "buffers-left-garbage"
    severity = Severity.ERROR
    all_configurations = True  # users may always choose the configuration that sets the buffers

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete:
            return
        for event in trace.of(ModuleMoved):
            if not event.untouched_buffers:
                continue
            which = names(event.untouched_buffers, "buffer")
            verb = "was" if len(event.untouched_buffers) == 1 else "were"
            loaded = _loaded_by_choice(trace, event)
            yield self.finding(
                event,
                f"{which} of `{class_name(trace, event.module)}` {verb} never written to after "
                "`to_empty`, and the model computes with uninitialised memory",
                help="Compute them again after `to_empty`, for instance in the module's "
                "`reset_parameters`, or copy them from a model that was not built on meta. Loading a "
                "checkpoint does not set buffers that are not persistent.",
                because=[(loaded, "a checkpoint is loaded here instead")] if loaded else [],
            )

    def concerns(self, trace: Trace, finding: Finding) -> bool:
        """Whether a trace moves the module, and is not one that initialises it instead of loading it."""
        moved = [one for one in trace.of(ModuleMoved) if one.site == finding.site]
        loaded = [guard for event in finding.events[1:] for guard in _settings_among(event.guards)]
        return bool(moved) and not any(
            _is_opposite(guard, other)
            for one in moved
            for guard in _settings_among(one.set_under)
            for other in loaded
        )


def _loaded_by_choice(trace: Trace, moved: ModuleMoved) -> Event | None:
    """Where a state is loaded into a module because of a setting, such as that of a resumed run."""
    for event in trace.after(moved, StateLoaded):
        family = trace.related(event.into, moved.module)
        if family and not event.ranks.partial and _settings_among(event.guards):
            return event
    return None


def _settings_among(guards: tuple[Guard, ...]) -> list[Guard]:
    return [guard for guard in guards if guard.kind is GuardKind.CONFIG]


def _is_opposite(one: Guard, other: Guard) -> bool:
    """Whether a condition excludes another one."""
    if one.text == other.text:
        return one.holds is not other.holds
    return one.predicate is not None and one.predicate == negated(other.predicate)

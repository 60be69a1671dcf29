"""Changes in place of parameters that FSDP1's root has left gathered.

After a forward without a backward, the outermost wrapper of FSDP1 keeps its gathered parameters.
The program sees the shards and changes these, but the next forward computes with the gathered ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fsdplint.trace import (
    BackwardRun,
    Called,
    Event,
    Fsdp1Used,
    GradMode,
    Trace,
    WeightsSet,
    Wrapped,
)
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import happens_before_each
from fsdplint.trace.queries.gathered import resharded_module
from fsdplint.trace.queries.wrappers import is_known_unit, strategy, unit_of

_STAYING = {"FULL_SHARD", "SHARD_GRAD_OP"}  # the strategies whose root was seen to stay gathered
_WITHOUT_BACKWARD = (GradMode.OFF, GradMode.INFERENCE)


@dataclass(frozen=True)
class StaleEdit:
    """A change that a forward does not see.

    Attributes:
        edit: the change.
        module: the wrapper.
        call: the forward that has left the parameters gathered.
        use: the forward that computes with these.
    """

    edit: WeightsSet
    module: str
    call: Called
    use: Called


@dataclass
class _Stay:
    """The time for which a wrapper stays gathered.

    call: the call that leaves it gathered.
    trained: whether the last call since then may have a backward.
    edits: the changes of its parameters since then.
    """

    call: Called
    trained: bool = False
    edits: list[WeightsSet] = field(default_factory=list)


def stale_edits(groups: Groups) -> Iterator[StaleEdit]:
    """The changes of parameters that a later forward certainly does not see."""
    trace = groups.trace
    made: dict[str, Wrapped] = {}
    stays: dict[str, _Stay] = {}
    for event in trace:
        if isinstance(event, Wrapped):
            made[event.module] = event
        elif isinstance(event, Called):
            wrapper = _root_of_call(groups, event, made)
            if wrapper is not None:
                yield from _call(stays, wrapper, event)
        elif isinstance(event, WeightsSet):
            for module, stay in stays.items():
                if _sets(groups, event, made[module], stay):
                    stay.edits.append(event)
        elif isinstance(event, BackwardRun):
            for module in [name for name, stay in stays.items() if stay.trained]:
                del stays[module]
        else:
            _forget(trace, stays, event)


def _call(stays: dict[str, _Stay], module: str, event: Called) -> Iterator[StaleEdit]:
    stay = stays.get(module)
    if stay is not None:
        for edit in stay.edits:
            yield StaleEdit(edit, module, stay.call, event)
        stay.edits = []
        stay.trained = stay.trained or event.grad not in _WITHOUT_BACKWARD
    elif event.grad in _WITHOUT_BACKWARD and not event.ranks.partial:
        stays[module] = _Stay(event)


def _root_of_call(groups: Groups, event: Called, made: dict[str, Wrapped]) -> str | None:
    """The outermost wrapper of FSDP1 that a call enters, if it is known to stay gathered."""
    wrapper = made.get(event.module)
    if wrapper is None or event.via != "call" or event.summoned:
        return None
    if any(above in made for above in groups.ancestors(event.module)):
        return None
    if "cpu_offload" in wrapper.options or strategy(wrapper) not in _STAYING:
        return None
    return event.module if wrapper.units is not None and is_known_unit(wrapper) else None


def _sets(groups: Groups, event: WeightsSet, wrapper: Wrapped, stay: _Stay) -> bool:
    """Whether an event certainly sets parameters in the wrapper's own unit."""
    if not event.in_place or event.same_values or event.summoned or not event.extent:
        return False
    if event.ranks.partial or any(guard.of_tensor for guard in event.guards):
        return False
    if not happens_before_each(stay.call, event):
        return False
    trace = groups.trace
    unit = {part for part in unit_of(groups, wrapper, event) if trace.modules[part].own_parameters}
    if event.extent == "own":
        return bool(event.modules) and unit.issuperset(map(trace.unwrap, event.modules))
    return not unit.isdisjoint(trace.submodules(*event.modules))


def _forget(trace: Trace, stays: dict[str, _Stay], event: Event) -> None:
    """Forget the wrappers that an event may shard again."""
    module = resharded_module(event)
    if isinstance(event, Fsdp1Used):
        module = event.module or ""
        if not module:
            stays.clear()
    if module in trace.modules:
        for name in [name for name in stays if trace.related(name, module)]:
            del stays[name]

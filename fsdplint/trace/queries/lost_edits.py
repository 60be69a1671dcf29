"""Changes of parameters in place while a forward has left them gathered, or `unshard()` has.

They change the gathered copies, which the next sharding drops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fsdplint.trace import (
    BackwardRun,
    Called,
    Event,
    Gathered,
    Sharded,
    StateTaken,
    Trace,
    WeightsSet,
)
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import happens_before_each
from fsdplint.trace.queries.gathered import StaysGathered, ends, forget, resharded_module

LostEdit = tuple[WeightsSet, str, Called | Gathered]


@dataclass
class _Stay:
    """The time for which a module stays gathered.

    first, last: the calls that leave it gathered, or the call of `unshard()`.
    edits: the changes of its parameters that no evaluation has used.
    temporary: whether its parameters may be changed for an evaluation: the module is called
        between two changes.
    """

    first: Called | Gathered
    last: Called | Gathered
    edits: list[WeightsSet] = field(default_factory=list)
    used: bool = False
    temporary: bool = False


def lost_edits(groups: Groups) -> Iterator[LostEdit]:
    """The changes that are certainly dropped, or raise an error, each with the module whose
    parameters are gathered and the call that left them so."""
    stays = StaysGathered(groups)
    held: dict[str, _Stay] = {}
    for event in groups.trace:
        stays.read(event)
        if isinstance(event, Called):
            module = stays.after(event)
            if module is not None:
                _call(held, module, event)
        elif isinstance(event, Gathered) and event.gathered:
            _forget_perhaps_sharded(groups.trace, held, event)
            if event.replaced:
                held.pop(event.module, None)
            else:
                held[event.module] = _Stay(event, event)
        elif isinstance(event, WeightsSet):
            for module, stay in held.items():
                if _sets(groups, event, module, stay):
                    _edit(stay, event)
                    if event.with_sharded:
                        yield event, module, stay.first
        else:
            for module in [
                name for name, stay in held.items() if _drops(groups, event, name, stay)
            ]:
                stay = held.pop(module)
                if not stay.temporary and not _is_evaluation(stay):
                    yield from ((one, module, stay.first) for one in stay.edits)
            _forget_perhaps_sharded(groups.trace, held, event)


def _call(held: dict[str, _Stay], module: str, event: Called) -> None:
    stay = held.setdefault(module, _Stay(event, event))
    stay.last = event
    stay.used = bool(stay.edits)


def _is_evaluation(stay: _Stay) -> bool:
    """Whether a forward uses changes that the program made between `unshard()` and `reshard()`.

    `reshard()` may then put the old weights back on purpose.
    """
    return isinstance(stay.first, Gathered) and stay.used


def _edit(stay: _Stay, event: WeightsSet) -> None:
    stay.temporary = stay.temporary or stay.used
    stay.edits.append(event)


def _sets(groups: Groups, event: WeightsSet, module: str, stay: _Stay) -> bool:
    """Whether an event certainly sets gathered parameters of the module, outside of its forward."""
    if not event.in_place or event.same_values or event.of_shard:
        return False
    if not event.extent or event.ranks.partial:
        return False
    if any(guard.of_tensor for guard in event.guards):
        return False
    if stay.first.ranks.partial or not happens_before_each(stay.first, event):
        return False
    inside = (*stay.last.stack, stay.last.site)
    if event.stack[: len(inside)] == inside:
        return False
    return _sets_group(groups, event, module, stay.first)


def _sets_group(groups: Groups, event: WeightsSet, module: str, call: Called | Gathered) -> bool:
    trace = groups.trace
    members = set(groups.members(module, before=call))
    if any(
        {"ignored_params", "**"} & set(shard.options) and {shard.module, *shard.group} & {module}
        for shard in trace.before(event, Sharded)
    ):
        return False
    if event.extent == "own":
        return members.issuperset(map(trace.unwrap, event.modules))
    parts = {part for name in event.modules for part in trace.submodules(name)}
    return any(part in parts and trace.modules[part].own_parameters for part in members)


def _drops(groups: Groups, event: Event, module: str, stay: _Stay) -> bool:
    """Whether an event certainly shards the module again, without values of its own."""
    if not isinstance(event, BackwardRun | Gathered | StateTaken):
        return False
    return ends(groups.trace, event, module, stay.last)


def _forget_perhaps_sharded(trace: Trace, held: dict[str, _Stay], event: Event) -> None:
    if not isinstance(event, BackwardRun):
        forget(trace, held, resharded_module(event))
        return
    for module, stay in list(held.items()):
        if isinstance(stay.last, Gathered) or stay.last.grad is None:
            del held[module]

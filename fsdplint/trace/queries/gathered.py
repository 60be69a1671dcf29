"""The FSDP2 modules that a forward leaves gathered.

A forward leaves the parameters of the root, and of modules with `reshard_after_forward=False`,
gathered until the backward pass. `state_dict()`, `to()` and `reshard()` shard them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from fsdplint.trace import (
    BackwardRun,
    Called,
    DataReplaced,
    Escaped,
    Event,
    Gathered,
    GradMode,
    Layout,
    ModuleMoved,
    OptimizerBuilt,
    OptimizerStepped,
    Sharded,
    StateLoaded,
    StateTaken,
    SyncSwitched,
    Trace,
)
from fsdplint.trace.groups import Groups, sharded_by
from fsdplint.trace.queries.common import happens_before_each, is_under_varying_test
from fsdplint.trace.torch_versions import ROOT_RESHARDED_SINCE

T = TypeVar("T")
_WITHOUT_BACKWARD = (GradMode.OFF, GradMode.INFERENCE)


class StaysGathered:
    """Which modules certainly stay gathered after a forward, as the events of a trace are read."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._keeps: dict[str, bool | None] = {}  # None: only where the module is the root
        self._sharded: set[str] = set()

    def read(self, event: Event) -> None:
        """Read an event that shards modules or changes when they are sharded again."""
        if isinstance(event, Sharded):
            self._sharded.update(sharded_by(event))
            self._keeps.update(_modules_kept_gathered(self._groups.trace, event))
        elif isinstance(event, SyncSwitched) and event.api == "set_reshard_after_forward":
            forget(self._groups.trace, self._keeps, event.module)

    def after(self, event: Called) -> str | None:
        """The module that a call leaves gathered, or None."""
        module = self._groups.trace.unwrapped_to(event.module, self._keeps)
        if module is None or not self._groups.gathers(event):
            return None
        stays = _stays(self._groups, module, self._keeps[module], self._sharded)
        return module if stays else None


def optimizers_over_gathered(
    groups: Groups,
) -> Iterator[tuple[OptimizerBuilt, dict[str, Called]]]:
    """Every optimizer, with the modules that certainly are gathered when it is built and the calls
    that left them so."""
    for event, whole in _events_over_gathered(groups, lambda one: isinstance(one, OptimizerBuilt)):
        assert isinstance(event, OptimizerBuilt)
        yield event, whole


def states_over_gathered(
    groups: Groups,
) -> Iterator[tuple[StateTaken | StateLoaded, dict[str, Called]]]:
    """The same for each state that is taken of an optimizer by its model, or set so, and for each
    whole state that is set into a model."""
    for event, whole in _events_over_gathered(groups, _needs_shards):
        assert isinstance(event, StateTaken | StateLoaded)
        yield event, whole


def sets_whole_state(event: Event) -> bool:
    """Whether a whole state is set into a model, whose shards take their parts of it."""
    if not isinstance(event, StateLoaded) or event.layout is Layout.SHARDED:
        return False
    name = event.api.rpartition(".")[2]
    return name in ("set_model_state_dict", "set_state_dict") and event.full is True


def _needs_shards(event: Event) -> bool:
    """Whether a state is taken or set through the names or shards of a model's parameters."""
    by_name = isinstance(event, StateTaken | StateLoaded) and event.api.rpartition(".")[2] in (
        "get_optimizer_state_dict",
        "set_optimizer_state_dict",
    )
    return by_name or sets_whole_state(event)


def _events_over_gathered(
    groups: Groups, wanted: Callable[[Event], bool]
) -> Iterator[tuple[Event, dict[str, Called]]]:
    """The events that are wanted, with the modules that certainly are gathered then and the calls
    that left them so."""
    stays = StaysGathered(groups)
    whole: dict[str, Called] = {}
    for event in groups.trace:
        if isinstance(event, Sharded | SyncSwitched):
            stays.read(event)
        elif isinstance(event, Called):
            module = stays.after(event)
            if module is not None:
                whole[module] = event
        elif isinstance(event, BackwardRun):
            whole = {m: call for m, call in whole.items() if call.grad in _WITHOUT_BACKWARD}
        else:
            if wanted(event):
                yield event, dict(whole)
            forget(groups.trace, whole, resharded_module(event))


def steps_over_gathered(
    groups: Groups,
) -> Iterator[tuple[OptimizerStepped, dict[str, Called | Gathered]]]:
    """Every optimizer step, with the modules that certainly were gathered again after the last
    backward pass and the events that gathered them."""
    stays = StaysGathered(groups)
    whole: dict[str, Called | Gathered] = {}
    after_backward = False
    for event in groups.trace:
        if isinstance(event, Sharded | SyncSwitched):
            stays.read(event)
        elif isinstance(event, BackwardRun):
            whole, after_backward = {}, True
        elif isinstance(event, OptimizerStepped):
            yield event, dict(whole)
            after_backward = False
        elif isinstance(event, Called):
            module = stays.after(event)
            if module is not None and after_backward:
                whole.setdefault(module, event)
        elif isinstance(event, Gathered) and event.gathered:
            if after_backward:
                whole.setdefault(event.module, event)
        else:
            forget(groups.trace, whole, resharded_module(event))


def computes_gathered(groups: Groups, module: str, step: OptimizerStepped) -> Called | None:
    """The first call after a step that computes with the parameters of a module which was gathered
    before it; None if the module is, or may be, sharded again before such a call."""
    for event in groups.trace.events[step.index + 1 :]:
        if isinstance(event, Called):
            if groups.gathers(event) and groups.enters(event, module):
                return event
        elif isinstance(event, BackwardRun):
            return None
        elif not (isinstance(event, Gathered) and event.gathered):
            resharded = resharded_module(event)
            if resharded in groups.trace.modules and groups.trace.related(resharded, module):
                return None
    return None


def holds_gathered_parameters(
    groups: Groups, built: OptimizerBuilt, module: str, gathering: Called | Gathered
) -> bool:
    """Whether an optimizer holds trained parameters of the group of a module, which an event
    certainly gathered on all ranks."""
    if is_under_varying_test(gathering) or gathering.ranks.partial:
        return False
    return holds_group(groups, built, module, gathering)


def holds_group(
    groups: Groups, built: OptimizerBuilt, module: str, gathering: Called | Gathered
) -> bool:
    """Whether an optimizer holds trained parameters of the group of a module at an event."""
    held = {part for name in built.modules for part in groups.trace.submodules(name)}
    return any(
        member in held and not groups.trace.modules[member].frozen
        for member in groups.parts_with_parameters(module, before=gathering)
    )


class MaybeGathered:
    """The modules that a forward may have left gathered, at each call and each `DataReplaced`."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._at: dict[int, dict[str, Called]] = {}
        self._follow()

    def at(self, module: str, event: Called | DataReplaced) -> bool:
        """Whether the module may be gathered at an event, whenever the program reaches it."""
        call = self._at.get(event.index, {}).get(module)
        return call is not None and happens_before_each(call, event)

    def _follow(self) -> None:
        groups, trace = self._groups, self._groups.trace
        keeps: dict[str, bool | None] = {}
        sharded: set[str] = set()
        whole: dict[str, Called] = {}
        for event in trace:
            if isinstance(event, Sharded):
                sharded.update(sharded_by(event))
                keeps.update(_perhaps_keeping(trace, event))
            elif isinstance(event, Called):
                self._at[event.index] = whole
                module = trace.unwrapped_to(event.module, keeps)
                if module is not None and groups.gathers(event):
                    kept = is_under_varying_test(event) and module in whole
                    if _stays(groups, module, keeps[module], sharded) and not kept:
                        whole = {**whole, module: event}
            elif isinstance(event, DataReplaced):
                self._at[event.index] = whole
            elif isinstance(event, SyncSwitched):
                if event.api == "set_reshard_after_forward":
                    keeps |= {m: event.enabled is not True for m in _parts(trace, event, sharded)}
            elif not (is_under_varying_test(event) or event.ranks.partial):
                whole = {m: c for m, c in whole.items() if not ends(trace, event, m, c)}


def _stays(groups: Groups, module: str, keep: bool | None, sharded: set[str]) -> bool:
    """Whether a module stays gathered after its forward; None stands for "where it is the root"."""
    below = any(above in sharded for above in groups.ancestors(module))
    return bool(keep) or keep is None and not below


def _modules_kept_gathered(trace: Trace, event: Sharded) -> dict[str, bool | None]:
    """Whether the modules stay gathered after a forward; not those of which that is not known."""
    keep = _reshards(trace, event)
    if event.group or not (keep is None or keep is False):
        return {}
    return {module: keep is False or None for module in sharded_by(event)}


def _perhaps_keeping(trace: Trace, event: Sharded) -> dict[str, bool | None]:
    """Whether the modules may stay gathered after a forward."""
    keep = _reshards(trace, event)
    stays = None if keep is None else keep is not True
    return {module: stays for module in sharded_by(event)}


def _reshards(trace: Trace, event: Sharded) -> object:
    """`reshard_after_forward`, as the torch of the program takes it; "?" if it is not known."""
    value = event.options.get("reshard_after_forward", "?" if "**" in event.options else None)
    return None if value is True and trace.lacks(ROOT_RESHARDED_SINCE) else value


def resharded_module(event: Event) -> str:
    """The module that is sharded again by an event, or may be: itself and all in it."""
    if isinstance(event, Gathered | ModuleMoved | Escaped):
        return event.module
    if isinstance(event, StateTaken):
        return event.of
    return event.into if isinstance(event, StateLoaded) else ""


def ends(trace: Trace, event: Event, module: str, call: Called | Gathered) -> bool:
    """Whether an event certainly shards a module again that a call has left gathered."""
    if isinstance(event, BackwardRun):
        return isinstance(call, Called) and call.grad is GradMode.ON
    if isinstance(event, Gathered):
        return event.module == module and not event.gathered
    if isinstance(event, Escaped):
        return False
    below = resharded_module(event)
    return below in trace.modules and trace.contains(below, module)


def _parts(trace: Trace, event: SyncSwitched, sharded: set[str]) -> list[str]:
    return [module for module in sharded if trace.contains(event.module, module)]


def forget(trace: Trace, known: dict[str, T], module: str) -> None:
    if module in trace.modules:
        for name in [name for name in known if trace.related(module, name)]:
            del known[name]

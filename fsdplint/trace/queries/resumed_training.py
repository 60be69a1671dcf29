"""Training that goes on from a checkpoint, and the states that it does not restore."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    Event,
    Fsdp1Used,
    HelperStateLoaded,
    HelperStateTaken,
    Loaded,
    OptimizerBuilt,
    OptimizerStepped,
    Saved,
    ScalerBuilt,
    ScalerStepped,
    SchedulerBuilt,
    SchedulerStepped,
    StateLoaded,
    StateTaken,
    Trace,
)
from fsdplint.trace.queries.common import whole_file


@dataclass(frozen=True)
class Part:
    """An optimizer, scheduler or gradient scaler of a program, by its name in the trace."""

    kind: str
    name: str
    built: Event


@dataclass(frozen=True)
class NotRestored:
    """A part whose state a checkpoint has, and that trains on as it was built.

    restored: where the model gets its state from the checkpoint.
    saved: where the program writes the checkpoint.
    step: the first step of the part.
    """

    part: Part
    restored: StateLoaded
    saved: Saved
    step: Event


def parts_not_restored(trace: Trace) -> Iterator[NotRestored]:
    """The parts that a resumed training begins anew, although the checkpoint has their states."""
    if not trace.complete:
        return
    for loaded in trace.of(Loaded):
        if loaded.empty or loaded.callbacks or loaded.ranks.partial or loaded.in_loop:
            continue
        restored = _restored_model(trace, loaded)
        if restored is None:
            continue
        parts = list(_parts_of_training(trace, restored))
        has_restored = any(_is_restored_from(trace, part, loaded) for part in parts)
        for part in parts:
            step = _first_step(trace, part, restored)
            if step is None or _may_go_on(trace, part, step):
                continue
            saved = _saved(trace, part, loaded, step, has_restored)
            if saved is not None:
                yield NotRestored(part, restored, saved, step)


def dropped_conversions(trace: Trace) -> Iterator[tuple[Fsdp1Used, OptimizerBuilt]]:
    """The states that FSDP1 prepares for an optimizer that nothing loads into it."""
    for event in trace.of(Fsdp1Used):
        if not event.dropped or event.module is None or event.callbacks:
            continue
        held = [
            built
            for built in trace.before(event, OptimizerBuilt)
            if any(trace.related(module, event.module) for module in built.modules)
        ]
        if held and not any(restores(trace, built) for built in held):
            yield event, held[-1]


def restores(trace: Trace, built: Event) -> bool:
    """Whether a trace loads a state into a part that is built at the place of another one."""
    names = {part.name for part in _parts(trace) if part.built.site == built.site}
    if any(event.into in names for event in _loads(trace)):
        return True
    return isinstance(built, OptimizerBuilt) and any(
        event.api == "set_state_dict" for event in trace.of(StateLoaded)
    )


def _parts(trace: Trace) -> Iterator[Part]:
    for built in trace.of(OptimizerBuilt):
        yield Part("optimizer", built.optimizer, built)
    for scheduler in trace.of(SchedulerBuilt):
        if scheduler.scheduler:
            yield Part("scheduler", scheduler.scheduler, scheduler)
    for scaler in trace.of(ScalerBuilt):
        if scaler.enabled:
            yield Part("gradient scaler", scaler.scaler, scaler)


def _restored_model(trace: Trace, loaded: Loaded) -> StateLoaded | None:
    """Where a sharded model gets its state from a file; None if a file is not for training."""
    states = {loaded.state, *loaded.states} - {None}
    for event in trace.after(loaded, StateLoaded, OptimizerStepped):
        if not isinstance(event, StateLoaded):
            return None
        if (
            {event.state, event.file} & states
            and event.into in trace.modules
            and not event.callbacks
        ):
            return event if trace.sharded_within(event.into) is not None else None
    return None


def _parts_of_training(trace: Trace, restored: StateLoaded) -> Iterator[Part]:
    """The parts that train the restored model."""
    optimizers = {
        built.optimizer
        for built in trace.of(OptimizerBuilt)
        if any(trace.related(module, restored.into) for module in built.modules)
    }
    scaled = {one.scaler for one in trace.of(ScalerStepped) if one.optimizer in optimizers}
    for part in _parts(trace):
        built = part.built
        if isinstance(built, ScalerBuilt):
            if part.name in scaled:
                yield part
        elif getattr(built, "optimizer", "") in optimizers:
            yield part


def _steps(trace: Trace, part: Part) -> list[Event]:
    if isinstance(part.built, OptimizerBuilt):
        return [one for one in trace.of(OptimizerStepped) if one.optimizer == part.name]
    if isinstance(part.built, SchedulerBuilt):
        return [one for one in trace.of(SchedulerStepped) if one.scheduler == part.name]
    return [one for one in trace.of(ScalerStepped) if one.scaler == part.name]


def _loads(trace: Trace) -> Iterator[StateLoaded | HelperStateLoaded]:
    yield from trace.of(StateLoaded)
    yield from trace.of(HelperStateLoaded)


def _first_step(trace: Trace, part: Part, restored: StateLoaded) -> Event | None:
    """The first step of a part, if it follows the load, in a training step."""
    steps = _steps(trace, part)
    if not steps or steps[0].index < restored.index or steps[0].callbacks:
        return None
    if isinstance(part.built, SchedulerBuilt):
        training = trace.after(restored, OptimizerStepped)
        first = next((one for one in training if one.optimizer == part.built.optimizer), None)
        if first is None or first.index > steps[0].index:
            return None  # the program moves it on by itself
    return steps[0]


def _may_go_on(trace: Trace, part: Part, step: Event) -> bool:
    """Whether a part may have another state at its first step than the one it was built with."""
    if any(event.into == part.name and event.index < step.index for event in _loads(trace)):
        return True
    if isinstance(part.built, SchedulerBuilt):
        return part.built.goes_on or any(
            isinstance(one, SchedulerStepped) and one.with_epoch for one in _steps(trace, part)
        )
    return isinstance(part.built, OptimizerBuilt) and (
        not part.built.complete
        or any(event.api == "set_state_dict" for event in trace.before(step, StateLoaded))
        or any(part.name in _held(trace, event) for event in trace.before(step, Loaded))
    )


def _held(trace: Trace, loaded: Loaded) -> set[str]:
    """The optimizers into whose states, or into which, a distributed checkpoint is loaded."""
    of = {taken.of for taken in trace.before(loaded, StateTaken) if taken.state in loaded.states}
    return {*loaded.optimizers, *of}


def _is_restored_from(trace: Trace, part: Part, loaded: Loaded) -> bool:
    """Whether a part gets its state after a file was read, and before it steps."""
    steps = _steps(trace, part)
    end = steps[0].index if steps else len(trace.events)
    return any(
        _is_load_into(part, event) for event in _loads(trace) if loaded.index < event.index < end
    )


def _is_load_into(part: Part, event: StateLoaded | HelperStateLoaded) -> bool:
    """Whether the program loads a state into a part, and does not only set it by hand."""
    if isinstance(event, HelperStateLoaded):
        return event.into == part.name and event.state is not None
    both = isinstance(part.built, OptimizerBuilt) and event.api == "set_state_dict"
    return both or event.into == part.name


def _saved(
    trace: Trace, part: Part, loaded: Loaded, step: Event, has_restored: bool
) -> Saved | None:
    """Where the program writes the checkpoint that it has read, with the state of a part.

    has_restored: whether the program restores another part from the checkpoint.
    """
    same = {one.name for one in _parts(trace) if one.built.site == part.built.site}
    for saved in trace.of(Saved):
        if whole_file(saved.api) != whole_file(loaded.api):
            continue
        if not _is_same_file(saved, loaded, has_restored):
            continue
        continues = saved.index > step.index
        held = _parts_in(trace, saved)
        if _has_model(trace, saved) and (
            (continues and part.name in held) or (has_restored and held & same)
        ):
            return saved
    return None


def _is_same_file(saved: Saved, loaded: Loaded, has_restored: bool) -> bool:
    """Whether a program reads the file that it writes, or a file of the same form."""
    if saved.path and saved.path == loaded.path:
        return True
    differs_by_step = "{" in saved.path or not saved.path
    return has_restored and (differs_by_step or not loaded.path)


def _parts_in(trace: Trace, saved: Saved) -> set[str]:
    """The parts whose states a file has, under keys that the program does not read."""
    states = {*saved.states, *saved.helper_states}
    if saved.unread is not None:
        states &= set(saved.unread)
    helpers = trace.before(saved, HelperStateTaken)
    return {
        *(taken.of for taken in trace.before(saved, StateTaken) if taken.state in states),
        *(taken.of for taken in helpers if taken.state in states),
    }


def _has_model(trace: Trace, saved: Saved) -> bool:
    return bool(saved.modules) or any(
        taken.state in saved.states and taken.of in trace.modules
        for taken in trace.before(saved, StateTaken)
    )

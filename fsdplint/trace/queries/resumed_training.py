"""Training that goes on from a checkpoint, and the states that it does not restore."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    Event,
    Fsdp1Used,
    HelperStateLoaded,
    HelperStateTaken,
    Layout,
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
    first,
)
from fsdplint.trace.queries.common import only_fsdp2, optimizers_over, whole_file
from fsdplint.trace.queries.file_forms import form_of, name_within

_WITHOUT_STATE = {"", "SGD"}  # classes of optimizers that may have no state


@dataclass(frozen=True)
class Part:
    """An optimizer, scheduler or gradient scaler of a program, by its name in the trace."""

    kind: str
    name: str
    built: Event


@dataclass(frozen=True)
class NotRestored:
    """A part that trains on as it was built, after a checkpoint was read.

    in_file: whether the checkpoint has its state, and not that of another optimizer alone.
    restored: where the model gets its state from the checkpoint; a load in place does both.
    saved: where the program writes the checkpoint.
    step: the first step of the part.
    optimizer: the optimizer whose state comes back there, so that the training goes on; None if no
        optimizer does.
    """

    part: Part
    restored: Event
    saved: Saved
    step: Event
    in_file: bool = True
    optimizer: Event | None = None


@dataclass(frozen=True)
class _Restored:
    """A sharded model that gets its state from a file, and where."""

    model: str
    event: Event


def parts_not_restored(trace: Trace) -> Iterator[NotRestored]:
    """The parts that a resumed training begins anew, although the checkpoint has their states, or
    that of another optimizer."""
    if not trace.complete:
        return
    for loaded in trace.of(Loaded):
        if loaded.empty or loaded.callbacks or loaded.ranks.partial or loaded.in_loop:
            continue
        restored = _restored_model(trace, loaded)
        if restored is None:
            continue
        parts = list(_parts_of_training(trace, restored.model))
        found = [part for part in parts if _is_restored_from(trace, part, loaded)]
        has_restored = bool(found)
        optimizer = first(part.built for part in found if part.kind == "optimizer")
        for part in parts:
            step = _first_step(trace, part, restored.event)
            if step is None or _may_go_on(trace, part, step):
                continue
            saved = _checkpoint_with(trace, part, loaded, step, has_restored)
            saved = saved or _saved_beside(trace, part, loaded, step)
            if saved is not None:
                yield NotRestored(part, restored.event, saved, step, optimizer=optimizer)
                continue
            without = _saved_without(trace, part, loaded, step)
            if without is not None:
                yield NotRestored(part, restored.event, without, step, in_file=False)


def resumed_models(trace: Trace) -> Iterator[tuple[str, Event, Saved]]:
    """The models that a resumed training restores together with an optimizer, where it does so, and
    where the program writes such a checkpoint."""
    for loaded in trace.of(Loaded):
        if loaded.empty or loaded.callbacks or loaded.ranks.partial or loaded.in_loop:
            continue
        restored = _restored_model(trace, loaded)
        if restored is None:
            continue
        parts = [one for one in _parts_of_training(trace, restored.model) if _steps(trace, one)]
        if not any(_is_restored_from(trace, part, loaded) for part in parts):
            continue
        for saved in trace.of(Saved):
            same = whole_file(saved.api) == whole_file(loaded.api)
            if same and _has_model(trace, saved) and _is_same_file(saved, loaded, True):
                yield restored.model, restored.event, saved
                break


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
    """Whether a trace loads a state into a part that is built at the place of another one.

    Two programs may use one function that builds such parts, and only one of them restores it.
    """
    begin = _begin(built)
    same = (one for one in _parts(trace) if one.built.site == built.site)
    names = {part.name for part in same if _begin(part.built) == begin}
    if not names:
        return False
    if any(event.into in names for event in _loads(trace)):
        return True
    return isinstance(built, OptimizerBuilt) and any(
        event.api == "set_state_dict" for event in trace.of(StateLoaded)
    )


def _begin(built: Event) -> str:
    """The file from which a program comes to where it builds a part."""
    return built.stack[0].path if built.stack else built.site.path


def _parts(trace: Trace) -> Iterator[Part]:
    for built in trace.of(OptimizerBuilt):
        yield Part("optimizer", built.optimizer, built)
    for scheduler in trace.of(SchedulerBuilt):
        if scheduler.scheduler:
            yield Part("scheduler", scheduler.scheduler, scheduler)
    for scaler in trace.of(ScalerBuilt):
        if scaler.enabled:
            yield Part("gradient scaler", scaler.scaler, scaler)


def _restored_model(trace: Trace, loaded: Loaded) -> _Restored | None:
    """The sharded model that gets its state from a file; None if a file is not for training."""
    into = _model_loaded_in_place(trace, loaded)
    if into is not None:
        return _Restored(into, loaded)
    states = {loaded.state, *loaded.states} - {None}
    for event in trace.after(loaded, StateLoaded, OptimizerStepped):
        if not isinstance(event, StateLoaded):
            return None
        if (
            {event.state, event.file} & states
            and event.into in trace.modules
            and not event.callbacks
        ):
            sharded = trace.sharded_within(event.into) is not None
            return _Restored(event.into, event) if sharded else None
    return None


def _model_loaded_in_place(trace: Trace, loaded: Loaded) -> str | None:
    """The model whose parameters a distributed checkpoint is loaded into, if nothing sets it after.

    The state of a model that `fully_shard` shards has the parameters themselves.
    """
    if whole_file(loaded.api):
        return None
    taken = [one for one in trace.before(loaded, StateTaken) if one.state in loaded.states]
    models = {one.of for one in taken if one.of in trace.modules and one.layout is Layout.SHARDED}
    if len(models) != 1 or any(one.into in models for one in trace.after(loaded, StateLoaded)):
        return None
    (model,) = models
    return model if only_fsdp2(trace, model, loaded) else None


def _parts_of_training(trace: Trace, model: str) -> Iterator[Part]:
    """The parts that train a model."""
    optimizers = optimizers_over(trace, model)
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


def _first_step(trace: Trace, part: Part, restored: Event) -> Event | None:
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
        or any(
            part.name in _loaded_optimizers(trace, event) for event in trace.before(step, Loaded)
        )
    )


def _loaded_optimizers(trace: Trace, loaded: Loaded) -> set[str]:
    """The optimizers into whose states, or into which, a distributed checkpoint is loaded."""
    of = {taken.of for taken in trace.before(loaded, StateTaken) if taken.state in loaded.states}
    return {*loaded.optimizers, *of}


def _is_restored_from(trace: Trace, part: Part, loaded: Loaded) -> bool:
    """Whether a part gets its state from a file, in place or before it steps."""
    if part.name in _loaded_optimizers(trace, loaded):
        return True
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


def _checkpoint_with(
    trace: Trace, part: Part, loaded: Loaded, step: Event, has_restored: bool
) -> Saved | None:
    """Where the program writes the checkpoint that it has read, with the state of a part.

    has_restored: whether the program restores another part from the checkpoint.
    """
    same = {one.name for one in _parts(trace) if one.built.site == part.built.site}
    read = same if part.name in _helpers_read(trace, loaded) else set()
    for saved in trace.of(Saved):
        if whole_file(saved.api) != whole_file(loaded.api):
            continue
        if not _is_same_file(saved, loaded, has_restored):
            continue
        continues = saved.index > step.index
        held = _parts_in(trace, saved, read)
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


def _helpers_read(trace: Trace, loaded: Loaded) -> set[str]:
    """The helpers whose states a distributed checkpoint reads into the dict of the load."""
    helpers = trace.before(loaded, HelperStateTaken)
    return {taken.of for taken in helpers if taken.state in loaded.helper_states}


def _parts_in(trace: Trace, saved: Saved, read: Container[str] = ()) -> set[str]:
    """The parts whose states a file has, under keys that the program does not read.

    read: parts for which it does not matter whether the program reads their keys elsewhere.
    """
    taken: list[StateTaken | HelperStateTaken] = [
        *trace.before(saved, StateTaken),
        *trace.before(saved, HelperStateTaken),
    ]
    held = [one for one in taken if one.state in {*saved.states, *saved.helper_states}]
    return {
        one.of
        for one in held
        if one.of in read or saved.unread is None or one.state in saved.unread
    }


def _saved_without(trace: Trace, part: Part, loaded: Loaded, step: Event) -> Saved | None:
    """Where the program writes the checkpoint that it has read, without the state of a part.

    The program saves and restores the state of another optimizer, or of that of the scheduler, and
    takes that of this part nowhere. A part that is built after the load may depend on it.
    """
    built = part.built
    if not _needs_state(built) or built.index > loaded.index:
        return None
    same = {one.name for one in _parts(trace) if one.built.site == built.site}
    taken_of = {one.of for one in trace.of(StateTaken)}
    if same & (taken_of | {one.of for one in trace.of(HelperStateTaken)}):
        return None
    others = {
        one.name
        for one in _parts(trace)
        if isinstance(one.built, OptimizerBuilt) and _is_restored_from(trace, one, loaded)
    }
    if isinstance(built, SchedulerBuilt):
        others &= {built.optimizer}
    for saved in trace.of(Saved):
        if whole_file(saved.api) != whole_file(loaded.api) or saved.index < step.index:
            continue
        taken = [one for one in trace.before(saved, StateTaken) if one.state in saved.states]
        if _has_model(trace, saved) and others & {one.of for one in taken}:
            return saved if _is_same_file(saved, loaded, has_restored=True) else None
    return None


def _needs_state(built: Event) -> bool:
    """Whether an optimizer or scheduler certainly goes on in another way without its state."""
    if isinstance(built, SchedulerBuilt):
        return built.by_steps
    return isinstance(built, OptimizerBuilt) and built.class_name not in _WITHOUT_STATE


def _saved_beside(trace: Trace, part: Part, loaded: Loaded, step: Event) -> Saved | None:
    """Where the program writes the state of a part into a file beside that of the model.

    The resumed program reads this file, and another entry of it.
    """
    files = [
        one.path
        for one in trace.before(step, Loaded)
        if whole_file(one.api) and one.guards == loaded.guards and not one.callbacks
    ]
    forms = {form_of(path) for path in files} - {""}
    names = {name_within(path, loaded.path) for path in files} - {""}
    folders = [one.path for one in trace.of(Saved) if _has_model(trace, one)]
    same = {one.name for one in _parts(trace) if one.built.site == part.built.site}
    for saved in trace.of(Saved):
        if not whole_file(saved.api) or _has_model(trace, saved):
            continue
        beside = form_of(saved.path) in forms and form_of(loaded.path) in map(form_of, folders)
        within = any(name_within(saved.path, folder) in names for folder in folders)
        if (beside or within) and same & _parts_in(trace, saved):
            return saved
    return None


def _has_model(trace: Trace, saved: Saved) -> bool:
    return bool(saved.modules) or any(
        taken.state in saved.states and taken.of in trace.modules
        for taken in trace.before(saved, StateTaken)
    )

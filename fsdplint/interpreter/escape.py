"""Modules and data that are passed to functions that cannot be followed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.freezing import doubt_wholly_frozen
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.saved_contents import contents
from fsdplint.interpreter.torch_values import (
    Batches,
    GeneratorValue,
    HelperState,
    LoaderValue,
    ParametersOf,
    SamplerValue,
    ScalerValue,
    SchedulerValue,
    StateValue,
)
from fsdplint.interpreter.training_modes import set_mode
from fsdplint.interpreter.values import (
    Bound,
    Const,
    Dict,
    GeneratorContext,
    Instance,
    LibraryObject,
    Method,
    ModuleValue,
    OptimizerValue,
    Sequence,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.trace import (
    DataEscaped,
    Escaped,
    HelperStateLoaded,
    HelperStateTaken,
    Loaded,
    OptimizerBuilt,
)

_WITHOUT_PARTS = (Const, Symbol)
MAX_DEPTH = 2  # of values in values


def escape(run: Run, call: Call) -> None:
    """Record that the arguments of a call escape."""
    for value in call.values:
        if isinstance(value, _WITHOUT_PARTS):
            continue
        values = list(values_in(run, value))
        modules = [one for one in values if isinstance(one, ModuleValue)]
        for module in [*modules, *_holder(run, value)]:
            info = run.trace.modules.get(module.id)
            set_mode(run, module, None)
            if not module.wrapper:
                doubt_wholly_frozen(run, module)
            if info is not None:
                info.escaped = True
                run.emit(Escaped, call.node, module=module.id)
        for data in (id for one in values for id in _data_of(one)):
            run.emit(DataEscaped, call.node, data=data)
        run.shared_iterables.update(filter(_is_iterable, values))
        helpers = [one.id for one in values if isinstance(one, SchedulerValue | ScalerValue)]
        for helper in [*helpers, *(id for one in values for id in _helpers_of_state(run, one))]:
            run.emit(HelperStateLoaded, call.node, into=helper)
        optimizers = {_optimizer_of(one) for one in values} - {""}
        for built in run.trace.of(OptimizerBuilt) if optimizers else ():
            built.escaped = built.escaped or built.optimizer in optimizers
        if run.windows:
            run.windows.pop(value, None)  # other code may add elements
        held_states = [one for one in contents(run, value) if isinstance(one, StateValue)]
        run.edited_states.update(state.id for state in held_states)
        if isinstance(value, GeneratorValue):
            value.seed, value.per_rank = None, False  # other code may seed it
        for held in (value, *_parts_of(value)):
            if isinstance(held, Dict):
                held.doubtful = True
                held.empty_elsewhere = False
            elif isinstance(held, Sequence):
                held.length = None


def forget_passed_states(run: Run, call: Call) -> None:
    """A library function, or code out of sight, may change the states that it gets."""
    if not run.unchanged_states:
        return
    held = [one for value in call.values for one in values_in(run, value)]
    run.unchanged_states = [
        state for state in run.unchanged_states if not call.open and state not in held
    ]


def _holder(run: Run, value: Value) -> list[ModuleValue]:
    """The module of unknown structure of which a value may be any part."""
    value = run.settle(value)
    held = value.part_of if isinstance(value, Unknown) else None
    return [held] if held is not None else []


def modules_in(run: Run, value: Value) -> list[ModuleValue]:
    """The modules that a value is or holds."""
    return [one for one in values_in(run, value) if isinstance(one, ModuleValue)]


def values_in(run: Run, value: Value, depth: int = 0) -> Iterator[Value]:
    """A value, and those that can be reached through it."""
    value = run.settle(value)
    yield value
    for part in _parts_of(value) if depth <= MAX_DEPTH else ():
        yield from values_in(run, part, depth + 1)


def _data_of(value: Value) -> list[str]:
    """The ids of a sampler, or of a loader with its sampler."""
    if isinstance(value, SamplerValue):
        return [value.id]
    if isinstance(value, LoaderValue):
        return [value.id, *([value.sampler.id] if value.sampler is not None else [])]
    return []


def _is_iterable(value: Value) -> TypeGuard[Instance]:
    """Whether a value is an object with an `__iter__` of the program."""
    return isinstance(value, Instance) and value.cls.lookup("__iter__") is not None


def _helpers_of_state(run: Run, value: Value) -> list[str]:
    """The schedulers and gradient scalers whose loaded states a value has."""
    if not isinstance(value, HelperState):
        return []
    if not any(value.id in loaded.helper_states for loaded in run.trace.of(Loaded)):
        return []
    return [taken.of for taken in run.trace.of(HelperStateTaken) if taken.state == value.id]


def _optimizer_of(value: Value) -> str:
    """The id of the optimizer that a value is or belongs to; "" if there is none."""
    if isinstance(value, Dict | Sequence | ParametersOf) and value.optimizer is not None:
        return value.optimizer.id
    return value.id if isinstance(value, OptimizerValue) else ""


def _parts_of(value: Value) -> list[Value]:
    """The values that can be reached through a value."""
    if isinstance(value, Sequence):
        return value.items
    if isinstance(value, Dict):
        return list(value.items.values())
    if isinstance(value, Instance):
        return list(value.attributes.values())
    if isinstance(value, Batches):
        return [value.loader]
    if isinstance(value, LoaderValue):
        return [value.order] if value.order is not None else []
    if isinstance(value, LibraryObject) and value.name == "torch.utils.data.BatchSampler":
        return list(value.args.values())
    if isinstance(value, Bound | Method):
        return [value.receiver]
    if isinstance(value, GeneratorContext):
        return [*value.args, *value.kwargs.values()]
    return []

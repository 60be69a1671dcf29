"""Modules and data that are passed to functions that cannot be followed."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.freezing import doubt_wholly_frozen
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.saved_contents import contents
from fsdplint.interpreter.torch_values import (
    Batches,
    GeneratorValue,
    HelperState,
    LoaderValue,
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
    Sequence,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.trace import DataEscaped, Escaped, HelperStateLoaded, HelperStateTaken, Loaded

_WITHOUT_PARTS = (Const, Symbol)


def escape(run: Run, call: Call) -> None:
    """Record that the arguments of a call escape."""
    for value in call.values:
        if isinstance(value, _WITHOUT_PARTS):
            continue
        for module in [*modules_in(run, value), *_holder(run, value)]:
            info = run.trace.modules.get(module.id)
            set_mode(run, module, None)
            if not module.wrapper:
                doubt_wholly_frozen(run, module)
            if info is not None and not info.escaped:
                info.escaped = True
                run.emit(Escaped, call.node, module=module.id)
        for data in data_in(run, value):
            run.emit(DataEscaped, call.node, data=data)
        run.shared_iterables.update(_iterables_in(run, value))
        for helper in [*helpers_in(run, value), *_helpers_of_states(run, value)]:
            run.emit(HelperStateLoaded, call.node, into=helper)
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


def _holder(run: Run, value: Value) -> list[ModuleValue]:
    """The module of unknown structure of which a value may be any part."""
    value = run.settle(value)
    held = value.part_of if isinstance(value, Unknown) else None
    return [held] if held is not None else []


def modules_in(run: Run, value: Value, depth: int = 0) -> list[ModuleValue]:
    """The modules that a value is or holds."""
    value = run.settle(value)
    if isinstance(value, ModuleValue):
        return [value]
    parts = _parts_of(value) if depth <= 2 else []
    return [m for part in parts for m in modules_in(run, part, depth + 1)]


def data_in(run: Run, value: Value, depth: int = 0) -> list[str]:
    """The ids of the samplers and loaders that a value is or holds."""
    value = run.settle(value)
    if isinstance(value, Batches):
        value = value.loader
    if isinstance(value, SamplerValue):
        return [value.id]
    if isinstance(value, LoaderValue):
        return [value.id, *([value.sampler.id] if value.sampler is not None else [])]
    parts = _parts_of(value) if depth <= 2 else []
    return [data for part in parts for data in data_in(run, part, depth + 1)]


def _iterables_in(run: Run, value: Value, depth: int = 0) -> list[Instance]:
    """The objects with an `__iter__` of the program that a value is or holds."""
    value = run.settle(value)
    if isinstance(value, LoaderValue):
        return _iterables_in(run, value.order, depth) if value.order is not None else []
    own = [value] if isinstance(value, Instance) and value.cls.lookup("__iter__") else []
    parts = _parts_of(value) if depth <= 2 else []
    return own + [one for part in parts for one in _iterables_in(run, part, depth + 1)]


def helpers_in(run: Run, value: Value, depth: int = 0) -> list[str]:
    """The ids of the schedulers and gradient scalers that a value is or holds."""
    value = run.settle(value)
    if isinstance(value, SchedulerValue | ScalerValue):
        return [value.id]
    parts = _parts_of(value) if depth <= 2 else []
    return [helper for part in parts for helper in helpers_in(run, part, depth + 1)]


def _helpers_of_states(run: Run, value: Value, depth: int = 0) -> list[str]:
    """The schedulers and gradient scalers whose loaded states a value is or holds."""
    value = run.settle(value)
    if isinstance(value, HelperState):
        if not any(value.id in loaded.helper_states for loaded in run.trace.of(Loaded)):
            return []
        return [taken.of for taken in run.trace.of(HelperStateTaken) if taken.state == value.id]
    parts = _parts_of(value) if depth <= 2 else []
    return [of for part in parts for of in _helpers_of_states(run, part, depth + 1)]


def _parts_of(value: Value) -> list[Value]:
    """The values that can be reached through a value."""
    if isinstance(value, Sequence):
        return value.items
    if isinstance(value, Dict):
        return list(value.items.values())
    if isinstance(value, Instance):
        return list(value.attributes.values())
    if isinstance(value, LibraryObject) and value.name == "torch.utils.data.BatchSampler":
        return list(value.args.values())
    if isinstance(value, Bound | Method):
        return [value.receiver]
    if isinstance(value, GeneratorContext):
        return [*value.args, *value.kwargs.values()]
    return []

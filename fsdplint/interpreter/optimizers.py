"""Optimizers, and the modules whose parameters they update."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.attached_parts import note_optimized
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.freezing import frozen_parameters
from fsdplint.interpreter.ignored_parameters import leaves_out
from fsdplint.interpreter.models import tensors
from fsdplint.interpreter.module_tree import sharding_of_state
from fsdplint.interpreter.parameter_filters import filters_of, selected_by_name
from fsdplint.interpreter.parameter_sizes import parameters_below
from fsdplint.interpreter.rebuilt_optimizers import is_built_again
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf, StateValue
from fsdplint.interpreter.values import (
    Const,
    Dict,
    ModuleValue,
    OptimizerValue,
    Sequence,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace import (
    KnownParameter,
    Layout,
    OptimizerBuilt,
    OptimizerStepped,
    ParameterPart,
    RequiresGradSet,
    Sharded,
    Sharding,
    Wrapped,
)
from fsdplint.trace.groups import Groups, Shard
from fsdplint.trace.queries.optimizers import STEPPING_SINGLY
from fsdplint.trace.queries.wrappers import unit_around

# An optimizer of an unknown library is recognized by its name or its arguments.
OPTIMIZERS = re.compile(
    r"Ada|Dion|Lamb|LAMB|Lion|Muon|NAG|Optim|Prodigy|RMS|SGD|SOAP|Shampoo|Sophia"
)


SETTINGS_OF_OPTIMIZERS = {"lr", "betas", "momentum", "weight_decay"}


def optimizers_in(
    value: Value, settle: Callable[[Value], Value], depth: int = 0
) -> list[OptimizerValue]:
    """The optimizers that a value is, is part of, or contains."""
    value = settle(value)
    if isinstance(value, OptimizerValue):
        return [value]
    if isinstance(value, Dict | Sequence | ParametersOf) and value.optimizer is not None:
        return [value.optimizer]
    parts: list[Value] = []
    if isinstance(value, Sequence):
        parts = value.items
    elif isinstance(value, Dict):
        parts = list(value.items.values())
    if depth > 1:
        return []
    return [found for part in parts for found in optimizers_in(part, settle, depth + 1)]


def build_optimizer(
    run: Run, class_name: str, call: Call, library: str = "torch"
) -> OptimizerValue:
    """Build an optimizer of a library over its first argument."""
    optimizer = new_optimizer(run, class_name, call, library)
    fill_optimizer(run, optimizer, call)
    return optimizer


def new_optimizer(run: Run, class_name: str, call: Call, library: str = "") -> OptimizerValue:
    """An optimizer that has no parameters yet."""
    optimizer = OptimizerValue(run.new_id("optimizer"), class_name, library=library)
    optimizer.created_at = run.site(call.node)
    run.objects[optimizer.id] = optimizer
    return optimizer


def fill_optimizer(run: Run, optimizer: OptimizerValue, call: Call) -> None:
    """`__init__` of an optimizer, which may have been called before."""
    parameters = call.arg(0, "params")
    modules, complete = owners_of(run, parameters)
    optimizer.modules = tuple(modules)
    run.emit(
        OptimizerBuilt,
        call.node,
        optimizer=optimizer.id,
        class_name=optimizer.class_name,
        library=optimizer.library,
        modules=tuple(m.id for m in modules),
        complete=complete,
        filtered_by=tuple(sorted(filters_of(run, parameters))),
        selected_by_name=selected_by_name(run, parameters),
        parts=tuple(_parts(run, parameters)),
        lacks=_frozen_without(run, parameters),
        equal_rates=_groups_with_equal_rates(run, parameters),
        again=is_built_again(run, optimizer, call),
        stale=stale_modules(run, parameters),
    )
    note_optimized(run, optimizer.id, list(_lists_in(run, parameters)))
    _note_own_copies(run, parameters)
    ways = ("foreach", "fused")
    for way in ways:
        if constant(call.kwargs.get(way)) is True:
            tensors.emit_mixed(run, parameters, way, call.node)
    if optimizer.library == "torch" and optimizer.class_name in STEPPING_SINGLY:
        if not call.open and not any(way in call.kwargs for way in ways):
            tensors.emit_mixed(run, parameters, "default", call.node)


def _note_own_copies(run: Run, value: Value | None) -> None:
    """An optimizer that gets copies in float32 keeps the weights of a sharded model in it."""
    for held in _lists_in(run, value):
        if not held.derived or held.dtype.removeprefix("torch.") != "float32":
            continue
        inside = {part for module in held.modules for part in run.trace.family(module.id)}
        shardings: list[Sharded | Wrapped] = [*run.trace.of(Sharded), *run.trace.of(Wrapped)]
        for event in shardings:
            if event.module in inside:
                event.weights_in = ""


def _groups_with_equal_rates(run: Run, value: Value | None) -> int:
    """The number of groups in the argument of an optimizer, if none has a rate of its own."""
    value = run.settle(value) if value is not None else Unknown()
    groups = [run.settle(one) for one in value.items] if isinstance(value, Sequence) else []
    if not isinstance(value, Sequence) or value.open:
        return 0
    known = all(isinstance(one, Dict) and not one.open and "lr" not in one.items for one in groups)
    return len(groups) if known else 0


def _lists_in(run: Run, value: Value | None) -> Iterator[ParametersOf]:
    """The parameters, and lists of them, in the argument of an optimizer."""
    value = run.settle(value) if value is not None else Unknown()
    if isinstance(value, ParametersOf):
        yield value
    elif isinstance(value, Sequence):
        for part in value.items:
            yield from _lists_in(run, part)
    elif isinstance(value, Dict):
        yield from _lists_in(run, value.items.get("params"))


def _frozen_without(run: Run, value: Value | None) -> frozenset[KnownParameter]:
    """The frozen parameters that tests of `requires_grad` leave out of an optimizer."""
    lists = list(_lists_in(run, value))
    held = {part for one in lists if not _takes_trainable(run, one) for part in _parts_of(run, one)}
    return frozenset(
        parameter
        for one in lists
        if _takes_trainable(run, one)
        for module in one.modules
        for parameter in frozen_parameters(run, module)
        if parameter.owner not in held
    )


def _parts_of(run: Run, value: ParametersOf) -> list[str]:
    return list(run.trace.submodules(*(module.id for module in value.modules)))


def _takes_trainable(run: Run, value: ParametersOf) -> bool:
    """Whether a list has no parameter that is certainly frozen now."""
    since = run.trace.events[value.taken_at :] if value.taken_at is not None else ()
    return value.trainable and not any(isinstance(one, RequiresGradSet) for one in since)


def _parts(run: Run, value: Value | None) -> Iterator[ParameterPart]:
    """The lists of parameters in the argument of an optimizer."""
    value = run.settle(value) if value is not None else Unknown()
    if isinstance(value, ParametersOf):
        known = {
            one.key
            for module in value.modules
            for one in parameters_below(run, module)
            if value.left_out
        }
        yield ParameterPart(tuple(one.id for one in value.modules), value.left_out, len(known))
    elif isinstance(value, Sequence):
        for part in value.items:
            yield from _parts(run, part)
    elif isinstance(value, Dict):
        yield from _parts(run, value.items.get("params"))


def optimizer_layout(run: Run, optimizer: OptimizerValue) -> Layout:
    """The layout of the optimizer's own state at this point."""
    kinds = {sharding_of_state(run, module) for module in optimizer.modules}
    frameworks = {module.framework for module in optimizer.modules}
    if Sharding.FSDP2 in kinds or "fsdp2" in frameworks:
        return Layout.SHARDED
    parts = (unit_around(run.trace, module.id) for module in optimizer.modules)
    if Sharding.FSDP1 in kinds or "fsdp1" in frameworks or any(parts):
        return Layout.LOCAL
    return Layout.PLAIN if optimizer.modules else Layout.UNKNOWN


def state_by_parameter(run: Run, optimizer: OptimizerValue) -> StateValue:
    """`optimizer.state`"""
    return StateValue(run.new_id("state"), optimizer_layout(run, optimizer), optimizer)


def lose_optimizer(run: Run, value: Value) -> None:
    """Record that the optimizers in a value may update other parameters than at their creation.

    Nothing changes what the first step of an optimizer has updated.
    """
    for optimizer in optimizers_in(value, run.settle):
        for event in run.trace.of(OptimizerBuilt):
            event.regrouped = event.regrouped or event.optimizer == optimizer.id
        if any(step.optimizer == optimizer.id for step in run.trace.of(OptimizerStepped)):
            continue
        for event in run.trace.of(OptimizerBuilt):
            if event.optimizer == optimizer.id:
                event.complete = False


_HOLDERS = (Dict, Sequence, ParametersOf)  # of parameter groups


def note_group_change(run: Run, holder: Value, key: Value | None = None) -> None:
    """Record a change of a value that may be the parameter groups of an optimizer.

    key: the key of the only element that changes, if it is known.
    """
    holder = run.settle(holder)
    if not isinstance(holder, _HOLDERS) or holder.optimizer is None:
        return
    if isinstance(holder, ParametersOf) and holder.element:
        return
    of_setting = isinstance(key, Const) and key.value not in ("params", "param_groups")
    if not (isinstance(holder, Dict) and of_setting):
        lose_optimizer(run, holder.optimizer)


def optimizer_by_parameters(run: Run, origin: str, call: Call) -> OptimizerValue | None:
    """An optimizer of an unknown class, recognized by its arguments; None if it is none.

    origin: the dotted name of the class; "" if it has none.
    """
    library, _, name = origin.rpartition(".")
    if not name[:1].isupper() or not call.args or "chedul" in name:
        return None
    if not OPTIMIZERS.search(name) and not SETTINGS_OF_OPTIMIZERS & set(call.kwargs):
        return None  # an average of the weights, a context over parameters, ...
    modules, _ = owners_of(run, call.args[0])
    return build_optimizer(run, name, call, library.partition(".")[0]) if modules else None


def owners_of(run: Run, value: Value | None) -> tuple[list[ModuleValue], bool]:
    """The modules whose parameters a value holds, and whether it holds nothing else."""
    value = run.settle(value) if value is not None else Unknown()
    if isinstance(value, ParametersOf):
        return list(value.modules), value.complete or bool(value.name)
    if isinstance(value, Unknown):
        return _given_for(run, value), False
    parts: list[Value] = []
    if isinstance(value, Sequence):
        parts = value.items
    elif isinstance(value, Dict):
        parts = [value.items["params"]] if "params" in value.items else []
    modules: list[ModuleValue] = []
    complete = bool(parts)
    for part in parts:
        found, whole = owners_of(run, part)
        complete = complete and whole
        modules.extend(m for m in found if m not in modules)
    return modules, complete


def _given_for(run: Run, value: Unknown) -> list[ModuleValue]:
    """The modules that the call of an unknown function got, which made parameter groups."""
    call = value.created_at.node if value.created_at is not None else None
    if not isinstance(call, cst.Call):
        return []
    given = [run.settle(run.evaluations.get(arg.value, Unknown())) for arg in call.args]
    return [one for one in given if isinstance(one, ModuleValue)]


def take_parameters(run: Run, value: ParametersOf, *, element: bool = False) -> ParametersOf:
    """The parameters as `list(...)` or a loop reads them at this point."""
    taken = len(run.trace.events) if value.taken_at is None else value.taken_at
    named = value.named and not element
    element = element or value.element
    optimizer = value.optimizer if element else None  # a list of them is a copy
    return replace(value, named=named, element=element, taken_at=taken, optimizer=optimizer)


def _has_none_of(run: Run, event: Shard, value: ParametersOf) -> bool:
    """Whether a filter has left out all known parameters of the module that a sharding replaces."""
    module = run.objects.get(event.inner if isinstance(event, Wrapped) else event.module)
    if not value.left_out or not isinstance(module, ModuleValue):
        return False
    known = {one.key for one in parameters_below(run, module)}
    return bool(known) and known <= {one.key for one in value.left_out}


def stale_modules(run: Run, value: Value | None) -> tuple[str, ...]:
    """The modules whose parameters were replaced after the value read them."""
    value = run.settle(value) if value is not None else Unknown()
    if isinstance(value, ParametersOf):
        if value.taken_at is None:
            return ()
        groups = Groups(run.trace)
        since = [e for e in run.trace.events[value.taken_at :] if isinstance(e, Shard)]
        since = [
            event
            for event in since
            if not (leaves_out(run, event, value) or _has_none_of(run, event, value))
        ]
        return tuple(
            module.id
            for module in value.modules
            if any(groups.replaces(event, (module.id,)) for event in since)
        )
    parts: list[Value] = []
    if isinstance(value, Sequence):
        parts = value.items
    elif isinstance(value, Dict) and "params" in value.items:
        parts = [value.items["params"]]
    return tuple(dict.fromkeys(stale for part in parts for stale in stale_modules(run, part)))

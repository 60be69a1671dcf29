"""Assignments to names, attributes and items."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import (
    gathered_rows,
    gradient_writes,
    group_options,
    lazy,
    replaced_data,
    unfinished_saves,
    unset_buffers,
)
from fsdplint.interpreter.attributes import OPTIMIZER_PARTS
from fsdplint.interpreter.branch_sides import note_write
from fsdplint.interpreter.contract_code import leads_to_contract
from fsdplint.interpreter.decided_values import assigned_value
from fsdplint.interpreter.early_reads import note_early_reads
from fsdplint.interpreter.forward_summaries import abstract
from fsdplint.interpreter.freezing import (
    are_all,
    freeze_parameters,
    note_requires_grad,
    parameters_unfrozen_by,
)
from fsdplint.interpreter.functions import call_function
from fsdplint.interpreter.iteration import unpack
from fsdplint.interpreter.merging import decisive, join_values, matters
from fsdplint.interpreter.models.module_paths import list_of_names, split_path
from fsdplint.interpreter.module_elements import set_element
from fsdplint.interpreter.module_tree import note_keys
from fsdplint.interpreter.modules import as_module, note_tie, set_module_attribute
from fsdplint.interpreter.one_rank_dicts import note_entries
from fsdplint.interpreter.optimizers import lose_optimizer, note_group_change
from fsdplint.interpreter.own_dicts import as_dict, sets_entry
from fsdplint.interpreter.parameter_keys import note_key
from fsdplint.interpreter.parameter_marks import mark_parameters
from fsdplint.interpreter.replaced_parameters import with_identity
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.settings import override_entries
from fsdplint.interpreter.torch_values import (
    ModulePath,
    ParametersOf,
    SamplerValue,
    ScalerValue,
    SchedulerValue,
    StateValue,
    TensorValue,
    is_new_parameter,
)
from fsdplint.interpreter.training_modes import note_mode_set
from fsdplint.interpreter.transformers_models import layer_of_transformers
from fsdplint.interpreter.unknown_entries import set_entry
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Dict,
    Function,
    Instance,
    Lazy,
    LazyImport,
    LibraryObject,
    ModuleValue,
    Namespace,
    OptimizerValue,
    ProjectModule,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.interpreter.values import Sequence as SequenceValue
from fsdplint.trace import EpochSet, HelperStateLoaded, Layout, RequiresGradSet

MAX_MADE = 16  # modules of one unpacked comprehension


def assign(run: Run, target: cst.CSTNode, value: Value) -> None:
    """Bind a target (name, attribute, subscript, tuple) to a value."""
    value = assigned_value(run, value)
    if decisive(value) or (
        run.guards and isinstance(value, Function | Class | Bound) and leads_to_contract(run, value)
    ):
        run.mark_relevant()
    if isinstance(target, cst.Name):
        if isinstance(value, Unknown) and not value.label:
            value.label = target.value
        scope = run.frames[-1].scope
        run.changes += target.value in scope.aliases
        names = scope.aliases.get(target.value, scope).names
        note_write(run, names, target.value, names.get(target.value))
        names[target.value] = value
        run.evaluations[target] = value
    elif isinstance(target, cst.Attribute):
        owner = run.eval(target.value)
        if target.attr.value == "data":
            replaced_data.note_assignment(run, target, owner, value)
        set_attribute(run, owner, target.attr.value, value, target)
        run.evaluations[target] = value
    elif isinstance(target, cst.Subscript):
        _assign_subscript(run, target, value)
    elif isinstance(target, cst.Tuple | cst.List):
        _unpack(run, target, value)
    elif isinstance(target, cst.StarredElement):
        assign(run, target.value, value)


def _unpack(run: Run, target: cst.Tuple | cst.List, value: Value) -> None:
    count = len(target.elements)
    held = run.settle(value)
    rests = [i for i, one in enumerate(target.elements) if isinstance(one, cst.StarredElement)]
    if rests == [0] and count == 2 and isinstance(held, ModulePath) and held.names:
        head, last = split_path(run, held)
        items: list[Value] = [list_of_names(head), last]
    elif (
        rests and isinstance(held, SequenceValue) and not held.open and len(held.items) >= count - 1
    ):
        end = len(held.items) - (count - rests[0] - 1)
        rest: Value = SequenceValue(held.items[rests[0] : end])
        items = [*held.items[: rests[0]], rest, *held.items[end:]]
    else:
        items = _made_for_each(run, held, count) or unpack(run, value, count)
        for at in rests:
            items[at] = SequenceValue([group_options.any_group(items[at])], open=True)
    for element, item in zip(target.elements, items, strict=True):
        assign(run, element.value, item)


def _made_for_each(run: Run, value: Value, count: int) -> list[Value]:
    """The modules of `a, b = (Layer() for _ in range(2))`: each target gets one of its own.

    Such a comprehension has one element that stands for all. Its code is executed once for each.
    """
    node = value.node if isinstance(value, Lazy) else None
    if isinstance(value, SequenceValue) and value.created_at is not None:
        node = value.created_at.node
    if not isinstance(node, cst.GeneratorExp | cst.ListComp) or node.for_in.ifs or count > MAX_MADE:
        return []
    items: list[Value] = []
    made = lazy.consume(run, value)
    while isinstance(made, SequenceValue) and len(made.items) == 1:
        items += map(run.settle, made.items)
        if len(items) == count or not isinstance(items[-1], ModuleValue):
            break
        made = lazy.consume(run, run.eval(node))
    every = len(items) == count and all(isinstance(one, ModuleValue) for one in items)
    return items if every else []


def _assign_subscript(run: Run, target: cst.Subscript, value: Value) -> None:
    container = run.eval(target.value)
    keys = [
        run.eval(item.slice.value) for item in target.slice if isinstance(item.slice, cst.Index)
    ]
    key = keys[0] if len(keys) == 1 else Unknown()
    setter = container.cls.lookup("__setitem__") if isinstance(container, Instance) else None
    if isinstance(setter, Function):
        call_function(run, setter, container, [key, value], {}, target)
    else:
        held = as_dict(container)
        group_options.note_option(run, target, held, key, value)
        own = _is_own_tensor(run, target.value, held)
        assign_element(run, held, key, value, run.text(target.slice[0]), own=own)


def _is_own_tensor(run: Run, target: cst.BaseExpression, container: Value) -> bool:
    """Whether a name of the executed function holds a tensor that is no argument or attribute."""
    frame = run.frames[-1]
    if not isinstance(target, cst.Name) or not isinstance(container, Unknown):
        return False
    if frame.function is None or frame.scope.names.get(target.value) is not container:
        return False
    signature = run.project.signatures.get(frame.function.node)
    if signature is None or target.value in signature.params:
        return False
    attributes = frame.receiver.attributes if isinstance(frame.receiver, _WITH_ATTRIBUTES) else {}
    return all(container is not one for one in attributes.values())


def assign_element(
    run: Run, container: Value, key: Value, value: Value, text: str, *, own: bool = False
) -> None:
    """Set an element of a value.

    text: the source text of its key. own: whether only the executed function has the value.
    """
    changes = not isinstance(container, TensorValue | Instance) and not own
    if changes and not _holds(container, key, value):
        run.note_change(container)
    note_group_change(run, container, key)
    gathered_rows.note_element_set(run, container, value)
    unset_buffers.note_element_set(run, container)
    gradient_writes.note_element_set(run, container)
    if isinstance(container, ModuleValue):
        set_element(run, container, key, value)
    elif isinstance(container, Dict):
        note_entries(run, container)
        if isinstance(key, Const) and _hashable(key.value):
            note_write(run, container.items, key.value, container.items.get(key.value))
            container.items[key.value] = value
            note_keys(run, {key.value: value})
        else:
            identities = with_identity(run, container, key)
            container.may_have_more()
            container.identities = identities
            note_key(run, container, key)
            if isinstance(key, Unknown):
                override_entries(container)
            kinds = StateValue | ParametersOf | TensorValue | Unknown | SequenceValue | Dict
            if isinstance(value, kinds) or is_new_parameter(value):
                known = container.tensors.get(text, value)
                container.tensors[text] = join_values(known, value)
    elif isinstance(container, SequenceValue):
        index = key.value if isinstance(key, Const) else None
        container.every = False
        container.length = container.length if isinstance(index, int) else None
        if isinstance(index, int) and -len(container.items) <= index < len(container.items):
            container.items[index] = value
        elif matters(value):
            container.items.append(value)
    elif isinstance(container, ParametersOf):
        run.uninitialized.clear()
    elif isinstance(container, StateValue):
        # The tensor may have another layout, so the dict counts as another state.
        same = isinstance(value, StateValue) and value.id == container.id
        container.itself = False
        if not same and not isinstance(value, Const):
            container.id, container.layout = run.new_id("state"), Layout.UNKNOWN
    elif isinstance(container, Namespace):
        if isinstance(key, Const):
            container.scope.names[str(key.value)] = value
        else:
            override_entries(container)
    elif isinstance(container, Unknown):
        module = as_module(run, container) if isinstance(value, ModuleValue) else None
        if module is not None:
            set_element(run, module, key, value)
        elif isinstance(key, Const):
            set_entry(run, container, key.value, value)
        else:
            container.parts["[]"] = value
        unfinished_saves.note_stored(run, value)


def _holds(container: Value, key: Value, value: Value) -> bool:
    """Whether a dict has a value under a key that nothing can tell from another one."""
    if not isinstance(container, Dict) or not isinstance(key, Const) or not _hashable(key.value):
        return False
    return _is_equivalent(container.items.get(key.value), value)


def _is_equivalent(known: Value | None, value: Value) -> bool:
    return known is value or (known is not None and abstract(known) == abstract(value))


_WITH_ATTRIBUTES = (Instance, ModuleValue)


def set_attribute(run: Run, owner: Value, name: str, value: Value, node: cst.CSTNode) -> None:
    """`owner.name = value` at a node, or `setattr(owner, name, value)`."""
    if isinstance(owner, SamplerValue):
        run.emit(EpochSet, node, sampler=owner.id)  # `sampler.epoch = epoch`, `.seed`
    if name == "training":
        note_mode_set(run)
    if name == "grad":
        run.gradients_used_at = run.gradients_read_at = len(run.trace.events)
        gradient_writes.note_dropped(run)
    if name in ("grad", "data"):
        gradient_writes.note_made(run)
    if name == "weight":
        owner = layer_of_transformers(run, owner) or owner
    note_tie(run, owner, name, value, node)
    assign_attribute(run, owner, name, value)


def _attribute_before(target: Instance, name: str) -> Value | None:
    """What an attribute was; the class may give a default."""
    own = target.attributes.get(name)
    if own is not None:
        return own
    default = target.cls.lookup(name)
    return default if isinstance(default, Const) else None


def assign_attribute(run: Run, target: Value, name: str, value: Value) -> None:
    held = target.attributes.get(name) if isinstance(target, _WITH_ATTRIBUTES) else None
    if not _is_equivalent(held, value):
        run.note_change(target, name)
    if isinstance(target, Unknown) and target.refined is not None:
        target = target.refined
    if isinstance(target, ModuleValue):
        unset_buffers.note_set(run, target, name)
        set_module_attribute(run, target, name, value)
    elif isinstance(target, OptimizerValue) and name in OPTIMIZER_PARTS:
        lose_optimizer(run, target)
    elif isinstance(target, Instance) and sets_entry(target, name, value):
        pass
    elif isinstance(target, Instance):
        note_write(run, target.attributes, name, _attribute_before(target, name))
        target.attributes[name] = value
        if isinstance(value, StateValue) and value.tensor and value.api == "torch.load":
            note_early_reads(run, target, {name}, run.executing)
    elif isinstance(target, Class):
        target.attributes[name] = value
    elif isinstance(target, ProjectModule):
        target.scope.names[name] = value
    elif isinstance(target, Unknown):
        note_write(run, target.parts, name, target.parts.get(name))
        target.parts[name] = value
        unfinished_saves.note_stored(run, value)
    elif isinstance(target, SchedulerValue | ScalerValue):
        run.emit(HelperStateLoaded, run.executing, into=target.id)
    elif isinstance(target, LibraryObject) and target.name.endswith(".StateDictOptions"):
        note_write(run, target.args, name, target.args.get(name))
        target.args[name] = value
    elif isinstance(target, LibraryObject):
        mark_parameters(run, target, name)
        if name == "requires_grad" and is_new_parameter(target):
            note_requires_grad(run, target, value)
    elif isinstance(target, ParametersOf):
        mark_parameters(run, target, name)
        if name == "requires_grad":
            found = parameters_unfrozen_by(run, target.modules, value, wholly=are_all(target))
            freeze_parameters(run, target, value)
            modules = tuple(module.id for module in target.modules)
            run.emit(
                RequiresGradSet,
                run.executing,
                modules=modules,
                unfrozen_parameters=found,
            )
    elif isinstance(target, Function | Symbol | LazyImport):
        unfinished_saves.note_stored(run, value)


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True

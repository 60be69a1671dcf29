"""The methods that every module has."""

from __future__ import annotations

from typing import Any

import libcst as cst

from fsdplint.interpreter import meta_device, uninitialized, unset_buffers
from fsdplint.interpreter.assignment import assign_attribute
from fsdplint.interpreter.attached_parts import attach_module
from fsdplint.interpreter.attributes import read_attribute
from fsdplint.interpreter.elements import parameter_by_name
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.freezing import (
    are_all,
    doubt_frozen,
    freeze_parameters,
    note_requires_grad,
    parameters_unfrozen_by,
    set_frozen,
)
from fsdplint.interpreter.idle_turns import apply_function
from fsdplint.interpreter.iteration import iterate
from fsdplint.interpreter.models.module_paths import module_at, split_path
from fsdplint.interpreter.models.registry import method
from fsdplint.interpreter.module_attributes import element_of
from fsdplint.interpreter.module_elements import set_element
from fsdplint.interpreter.module_tree import add_child, child_values
from fsdplint.interpreter.modules import (
    append_element,
    as_module,
    note_new_parameter,
    set_module_attribute,
    submodule_values,
)
from fsdplint.interpreter.precisions import CASTS, note_cast
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ModulePath, ModulesOf, ParametersOf, is_new_parameter
from fsdplint.interpreter.training_modes import set_mode
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import (
    Const,
    LibraryObject,
    Method,
    ModuleValue,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import (
    ModuleMoved,
    RequiresGradSet,
)


@method("ModuleValue", "parameters", "named_parameters")
@method("Unknown", "parameters", "named_parameters")
def parameters(run: Run, receiver: Value, name: str, call: Call) -> Value:
    module = as_module(run, receiver)
    if module is None:
        return unknown_result(call)
    named = name.startswith("named")
    if constant(call.arg(int(named), "recurse")) is False and _has_none_itself(run, module):
        return Sequence([], kind="iter")
    return ParametersOf((module,), named=named, every=not call.values)


def _has_none_itself(run: Run, module: ModuleValue) -> bool:
    """Whether a module certainly has no parameters beside those of its submodules."""
    info = run.trace.modules[module.id]
    several = module.stands_for_parts or bool(module.wrapper)
    return info.own_parameters is False and info.children_known and not several


@method("ModuleValue", "modules", "named_modules", "children", "named_children")
@method("Unknown", "modules", "named_modules", "named_children")
def submodules(run: Run, receiver: Value, name: str, call: Call) -> Value:
    module = as_module(run, receiver)
    return ModulesOf(module, name) if module is not None else unknown_result(call)


@method("ModuleValue", "to", "cuda", "cpu", "to_empty", "half", "bfloat16", "float", "double",
        "type")  # fmt: skip
def move(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    dtype = CASTS.get(name)
    target = None
    for value in call.values:
        if isinstance(value, Symbol) and value.name.startswith("torch."):
            dtype = value.name.rpartition(".")[2]
        else:
            target = meta_device.device_name(run, value) or target
    if name in {"cuda", "cpu"}:
        target = name
    if name == "to_empty":
        receiver.on_meta = False
    from_meta = meta_device.fails_to_move(run, receiver, name, call)
    if name == "to_empty":
        uninitialized.begin(run, receiver)
    meta_device.note_move(run, receiver, name, call)
    note_cast(run, receiver, name, dtype, call)
    event = run.emit(
        ModuleMoved,
        call.node,
        module=receiver.id,
        method=name,
        device=target,
        dtype=dtype,
        from_meta=from_meta,
        recurse=name != "to_empty" or constant(call.arg(1, "recurse")) is not False,
    )
    if name == "to_empty":
        unset_buffers.begin(run, receiver, event)
    return receiver


@method("ModuleValue", "train", "eval")
def mode(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    given = call.arg(0, "mode")
    training = constant(given) if given is not None else name == "train"
    set_mode(run, receiver, training if isinstance(training, bool) and not call.open else None)
    return receiver


@method("ModuleValue", "requires_grad_")
def requires_grad(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    value = call.arg(0, "requires_grad")
    found = parameters_unfrozen_by(run, [receiver], value)
    set_frozen(run, [receiver], not (value is None or constant(value) is True))
    if value is not None and constant(value) is not False:
        doubt_frozen(run, [receiver])
    run.emit(RequiresGradSet, call.node, modules=(receiver.id,), unfrozen_parameters=found)
    return receiver


@method("LibraryObject", "to", "cuda", "cpu", "npu", "xpu", "half", "bfloat16", "float", "double",
        "train", "eval")  # fmt: skip
def same_loss(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    """`nn.CrossEntropyLoss().to(device)`: these methods of a module return the module."""
    return receiver if receiver.is_loss else call_unknown(run, Method(receiver, name), call)


@method("ParametersOf", "requires_grad_")
def parameter_requires_grad(run: Run, receiver: ParametersOf, name: str, call: Call) -> Value:
    value = call.arg(0, "requires_grad")
    found = parameters_unfrozen_by(run, receiver.modules, value, wholly=are_all(receiver))
    freeze_parameters(run, receiver, Const(True) if value is None else value)
    modules = tuple(module.id for module in receiver.modules)
    run.emit(RequiresGradSet, call.node, modules=modules, unfrozen_parameters=found)
    return receiver


@method("LibraryObject", "requires_grad_")
def own_requires_grad(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    value = call.arg(0, "requires_grad")
    if is_new_parameter(receiver):
        note_requires_grad(run, receiver, Const(True) if value is None else value)
    return receiver


@method("ModuleValue", "apply")
def apply(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """`m.apply(fn)` calls the function for every submodule, children before their parents."""
    if call.args:
        parts = submodule_values(run, ModulesOf(receiver, "modules"))[::-1]
        apply_function(
            run, call.args[0], parts, lambda part: run.call(call.args[0], Call(call.node, [part]))
        )
    return receiver


@method("ModuleValue", "append", "add_module", "register_module", "insert")
def add(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    if not call.args:
        return Unknown()
    value = run.settle(call.args[-1])
    if name == "append":
        append_element(run, receiver, value)
    elif isinstance(value, ModuleValue):
        key = constant(call.args[0])
        if value.inner is not None and value.inner in child_values(run, receiver):
            # a part goes into its own wrapper: `layers.register_module(name, torch.compile(layer))`
            set_element(run, receiver, Unknown(), value)
            if isinstance(key, str):
                receiver.attributes[key] = value
            return receiver
        attach_module(run, receiver, value)
        add_child(run, receiver, str(key) if key is not None else "*", value)
        if isinstance(key, str):
            receiver.attributes[key] = value
        elif receiver.elements is not None:
            receiver.elements.items.append(value)
    elif not is_none(value):
        run.trace.modules[receiver.id].children_known = False
    return receiver


@method("ModuleValue", "extend")
def extend(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    for item in iterate(run, call.args[0])[0] if call.args else []:
        append_element(run, receiver, item)
    return receiver


@method("ModuleValue", "items", "values", "keys")
def mapping_view(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    children: list[Any] = submodule_values(run, receiver)
    if name == "values":
        return Sequence(children, "list")
    if name == "keys":
        return Unknown(varying=True)
    return Sequence([Sequence([Unknown(varying=True), c], "tuple") for c in children], "list")


@method("ModuleValue", "get_submodule")
def submodule(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    target = run.settle(call.arg(0, "target") or Unknown())
    path = constant(target)
    if not isinstance(path, str):
        return module_at(run, receiver, target) or element_of(run, receiver, Unknown())
    return _submodule_at(run, receiver, path, call.node)


@method("ModuleValue", "set_submodule")
def replace_submodule(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    target, new = run.settle(call.arg(0, "target") or Unknown()), call.arg(1, "module")
    if new is None:
        return Const(None)
    path = constant(target)
    if isinstance(target, ModulePath) and not target.names:
        head, last_name = split_path(run, target)
        holder, leaf = module_at(run, receiver, head), constant(last_name)
        if holder is not None and isinstance(leaf, str):
            set_module_attribute(run, holder, leaf, new)
            return Const(None)
    if not isinstance(path, str):
        set_element(run, receiver, Unknown(), new)
        return Const(None)
    parent, _, last = path.rpartition(".")
    owner = _submodule_at(run, receiver, parent, call.node)
    if not isinstance(owner, ModuleValue):
        return Const(None)
    if last.isdigit() and owner.elements is not None:
        set_element(run, owner, Const(int(last)), new)
    else:
        set_module_attribute(run, owner, last, new)
    return Const(None)


def _submodule_at(run: Run, module: ModuleValue, path: str, node: cst.CSTNode) -> Value:
    """The module at a path such as "layers.0.linear"; the module itself for an empty path."""
    value: Value = module
    for part in path.split(".") if path else ():
        if part.isdigit() and isinstance(value, ModuleValue):
            value = run.settle(element_of(run, value, Const(int(part))))
        else:
            value = run.settle(read_attribute(run, value, part, node))
    return value


@method("ModuleValue", "get_parameter")
def parameter(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    path = constant(call.arg(0, "target"))
    return parameter_by_name(run, receiver, path) if isinstance(path, str) else Unknown()


@method("ModuleValue", "register_parameter")
def register_parameter(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    run.trace.modules[receiver.id].own_parameters = True
    receiver.must_be_meta = False
    attribute, value = constant(call.arg(0, "name")), call.arg(1, "param")
    if isinstance(attribute, str) and value is not None and is_new_parameter(value):
        set_module_attribute(run, receiver, attribute, value)
    elif value is not None and not is_none(value):
        note_new_parameter(run, receiver, Unknown())
    return Const(None)


@method("ModuleValue", "register_buffer")
def register_buffer(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """`self.register_buffer("mask", tensor)`: an attribute that is a tensor, and no method."""
    attribute = constant(call.arg(0, "name"))
    if isinstance(attribute, str):
        origin = unset_buffers.origin_of(run, receiver, attribute)
        assign_attribute(run, receiver, attribute, Unknown(origin=origin, varying=True))
        unset_buffers.register(run, receiver, attribute, call)
    return Const(None)

"""Attributes by name: `getattr`, `setattr`, `hasattr` and `vars`."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import assignment, meta_device
from fsdplint.interpreter.attributes import LOADER_PARTS, read_attribute
from fsdplint.interpreter.chosen_members import member
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.freezing import doubt_if_given
from fsdplint.interpreter.instances import instance_lacks
from fsdplint.interpreter.models import tensors
from fsdplint.interpreter.models.module_paths import module_at
from fsdplint.interpreter.models.named_in_settings import member_of_setting
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.models.type_tests import is_dtensor
from fsdplint.interpreter.module_attributes import (
    ONLY_FSDP2_HAS,
    WRAPPER_ATTRIBUTES,
    has_member,
    lacks_attribute,
)
from fsdplint.interpreter.module_elements import set_element
from fsdplint.interpreter.module_tree import note_whole_parameters
from fsdplint.interpreter.modules import hidden_child
from fsdplint.interpreter.parameter_marks import read_mark
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.settings import override_attributes
from fsdplint.interpreter.torch_values import (
    LoaderValue,
    ParameterName,
    ParametersOf,
    SamplerValue,
    ShardTensor,
    StateValue,
    is_new_parameter,
)
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Condition,
    Const,
    Dict,
    Function,
    Instance,
    Method,
    ModuleValue,
    OptimizerValue,
    Partial,
    ProjectModule,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace import Escaped, Gathered, ModuleBuilt, Sharded
from fsdplint.trace.groups import Groups


@function("builtins.getattr")
def get_attribute(run: Run, name: str, call: Call) -> Value:
    if len(call.args) >= 2 and isinstance(call.args[1], Const):
        attribute, module = str(call.args[1].value), run.settle(call.args[0])
        if (
            len(call.args) == 3
            and isinstance(module, ModuleValue)
            and attribute in ONLY_WRAPPERS_HAVE
        ):
            has = _wrapper_has(run, module, attribute)
            if not has:
                return run.settle(call.args[2]) if has is False else unknown_result(call)
            if attribute == "no_sync" and _wrapped_by_fsdp1(module):
                return Method(module, OPTIONAL_NO_SYNC)
        if len(call.args) == 3 and isinstance(module, ModuleValue) and attribute in ONLY_FSDP2_HAS:
            has = _fsdp2_has(run, module, attribute)
            if has is not None:
                return Method(module, attribute) if has else run.settle(call.args[2])
        if len(call.args) == 3 and isinstance(module, Instance):
            if instance_lacks(module, attribute):
                return run.settle(call.args[2])
        if len(call.args) == 3 and isinstance(module, ModuleValue):
            if has_member(run, module, attribute) is False:
                return run.settle(call.args[2])
        value = read_attribute(run, call.args[0], attribute, call.node)
        return run.settle(value)
    value = run.settle(call.args[0]) if call.args else Unknown()
    if isinstance(value, ModuleValue):
        path = run.settle(call.args[1]) if len(call.args) >= 2 else Unknown()
        return module_at(run, value, path) or hidden_child(run, value)
    found = None
    if len(call.args) >= 2:
        found = member_of_setting(run, value, run.settle(call.args[1]), call)
        found = found or member(run, value, call.args[1], call.node)
    return found if found is not None else unknown_result(call)


@function("builtins.setattr")
def set_attribute(run: Run, name: str, call: Call) -> Value:
    if len(call.args) == 3:
        target, key, value = call.args
        target = run.settle(target)
        if isinstance(key, Const):
            assignment.set_attribute(run, target, str(key.value), value, call.node)
        elif isinstance(target, ModuleValue):
            meta_device.note_attribute(target, value)
            if isinstance(key, ParameterName):
                replace_parameters(run, target, value, call)
            else:
                if is_new_parameter(value):
                    _note_unnamed_parameter(run, target)
                set_element(run, target, key, value)
        else:
            override_attributes(target)
    return Const(None)


def _note_unnamed_parameter(run: Run, module: ModuleValue) -> None:
    """A module gets a parameter under an unknown name, which may be trained."""
    doubt_if_given(run, module, [])
    if not any(built.module == module.id for built in run.trace.of(ModuleBuilt)):
        run.trace.modules[module.id].frozen = False  # its constructor runs


def replace_parameters(run: Run, module: ModuleValue, value: Value, call: Call) -> None:
    """`setattr(module, name, parameter)` with the name of a parameter.

    A whole parameter in place of a sharded one has the effect of `unshard()`, and the sharded one
    that of `reshard()`. Other than after `unshard()`, states have the whole parameters, too.
    """
    value = run.settle(value)
    owner = Groups(run.trace).owner(module.id)
    if owner is None or not (is_new_parameter(value) or isinstance(value, ParametersOf)):
        return
    whole = is_new_parameter(value)
    note_whole_parameters(run, owner, whole=whole)
    run.emit(Gathered, call.node, module=owner, gathered=whole, replaced=True)


OPTIONAL_NO_SYNC = "no_sync, or a default"  # the result of `getattr` with a default
ONLY_WRAPPERS_HAVE = {"no_sync": {"fsdp1", "ddp"}, "clip_grad_norm_": {"fsdp1"}}


def _fsdp2_has(run: Run, module: ModuleValue, attribute: str) -> bool | None:
    """Whether a module has a method that `fully_shard` adds; None if unknown."""
    if module.wrapper == "compile" and module.inner is not None:
        return _fsdp2_has(run, module.inner, attribute)
    if module.wrapper:
        return False
    if any(one.module == module.id for one in run.trace.of(Sharded)):
        return True
    if any(one.module == module.id for one in run.trace.of(Escaped)):
        return None
    if module.cls is None:
        return False if (module.library_class or "").startswith("torch.nn.") else None
    if module.cls.has_unknown_base() or module.cls.lookup(attribute) is not None:
        return None
    return False


def _wrapped_by_fsdp1(module: ModuleValue) -> bool:
    """Whether FSDP1 wraps a module, compiled or not."""
    if module.wrapper == "compile" and module.inner is not None:
        return _wrapped_by_fsdp1(module.inner)
    return module.wrapper == "fsdp1"


def _wrapper_has(run: Run, module: ModuleValue, attribute: str) -> bool | None:
    """Whether a module has a method of the DDP or FSDP1 wrapper; None if unknown.

    A model of a library that FSDP2 shards has none: it is no wrapper.
    """
    if module.wrapper == "compile" and module.inner is not None:
        return _wrapper_has(run, module.inner, attribute)
    if module.wrapper:
        return module.wrapper in ONLY_WRAPPERS_HAVE[attribute]
    if module.cls is None and any(one.module == module.id for one in run.trace.of(Sharded)):
        return False
    if module.cls is None:
        return False if (module.library_class or "").startswith("torch.nn.") else None
    if module.cls.lookup(attribute) is not None:
        return True
    return None if module.cls.has_unknown_base() else False


_OF_MESHES = frozenset({"get_group", "get_local_rank", "group", "mesh", "mesh_dim_names"})


@function("builtins.callable")
def is_callable(run: Run, name: str, call: Call) -> Value:
    value = run.settle(call.args[0]) if call.args else Unknown()
    if isinstance(value, Bound | Class | Function | ModuleValue | Partial):
        return Const(True)
    if isinstance(value, Const | Dict | Sequence):
        return Const(False)
    if isinstance(value, Instance) and not value.cls.has_unknown_base():
        return Const(value.cls.lookup("__call__") is not None)
    if isinstance(value, Unknown):
        return Unknown(origin=run.text(call.node), varying=unknown_result(call).varying)
    return Unknown(origin=run.text(call.node))


@function("builtins.hasattr")
def has_attribute(run: Run, name: str, call: Call) -> Value:
    if len(call.args) == 2 and constant(call.args[1]) in _OF_MESHES:
        if run.settle(call.args[0]) in run.whole_groups | run.part_groups:
            return Const(False)  # a process group is no mesh, and no object that holds one
    if call.args and isinstance(run.settle(call.args[0]), Unknown):
        return Unknown(origin=run.text(call.node), varying=unknown_result(call).varying)
    if call.args and isinstance(run.settle(call.args[0]), StateValue | ParametersOf | ShardTensor):
        value, attribute = run.settle(call.args[0]), constant(call.arg(1, "name"))
        read_mark(run, value, str(attribute), call.node)
        if attribute in tensors.OF_DTENSORS and is_dtensor(run, value):
            return Const(True)
        return Unknown(varying=True)  # differs from tensor to tensor
    if len(call.args) == 2 and isinstance(call.args[1], Const):
        value, attribute = run.settle(call.args[0]), str(call.args[1].value)
        if attribute in tensors.OF_DTENSORS and tensors.is_plain(value):
            return Const(False)
        if isinstance(value, SamplerValue) and attribute == "set_epoch":
            return Const(True)
        if isinstance(value, LoaderValue) and attribute in LOADER_PARTS:
            return Const(True)
        if isinstance(value, ModuleValue) and value.wrapper and attribute == "module":
            return Const(value.wrapper in {"fsdp1", "ddp"})
        if attribute in WRAPPER_ATTRIBUTES and lacks_attribute(run, value, attribute):
            return Const(False)
        if isinstance(value, ModuleValue) and attribute in ONLY_WRAPPERS_HAVE:
            known = _wrapper_has(run, value, attribute)
            return Const(known) if known is not None else Unknown(origin=run.text(call.node))
        if isinstance(value, ModuleValue) and attribute in ONLY_FSDP2_HAS:
            known = _fsdp2_has(run, value, attribute)
            if known is not None:
                return Const(known)
        if isinstance(value, Instance) and (
            attribute in value.attributes or value.cls.lookup(attribute) is not None
        ):
            return Const(True)
        if isinstance(value, Instance) and instance_lacks(value, attribute):
            return Const(False)
        if isinstance(value, ModuleValue):
            has = has_member(run, value, attribute) if name == "builtins.hasattr" else None
            if has is not None:
                return Const(has)
            text = _question(run, call, attribute)
            return Condition(text, text, subject=text, relation="truth", asks_for=attribute)
    return Unknown(origin=run.text(call.node))


def _question(run: Run, call: Call, attribute: str) -> str:
    """`hasattr(value, "attribute")`, wherever the program has the name of the attribute from."""
    node = call.node
    if not isinstance(node, cst.Call) or len(node.args) != 2:
        return run.text(node)
    return f'hasattr({run.text(node.args[0].value)}, "{attribute}")'


@function("builtins.vars")
def attributes_of(run: Run, name: str, call: Call) -> Value:
    value = run.settle(call.args[0]) if call.args else Unknown()
    if isinstance(value, OptimizerValue):
        return read_attribute(run, value, "__dict__", call.node)
    if isinstance(value, Symbol | ProjectModule | Class | Instance):
        return read_attribute(run, value, "__dict__", call.node)
    return unknown_result(call)

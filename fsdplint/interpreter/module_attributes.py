"""Attributes and elements of nn.Modules."""

from __future__ import annotations

import re
from dataclasses import replace

import libcst as cst

from fsdplint.interpreter import meta_device, unset_buffers
from fsdplint.interpreter.builtin_types import PLAIN_BASES
from fsdplint.interpreter.error_handling import catches_errors
from fsdplint.interpreter.functions import bind
from fsdplint.interpreter.library_classes import inherited_structure
from fsdplint.interpreter.models.registry import find_method
from fsdplint.interpreter.module_tree import sharding_inside
from fsdplint.interpreter.modules import DELEGATE, hidden_child
from fsdplint.interpreter.optimizers import take_parameters
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf, is_new_parameter
from fsdplint.interpreter.transformers_models import (
    is_part_of_transformers,
    is_transformers_model,
)
from fsdplint.interpreter.values import (
    Class,
    Const,
    Method,
    ModuleValue,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.trace import Fsdp1Used, Sharding
from fsdplint.trace.groups import Groups

# Attributes of modules that are neither submodules nor methods of the user.
PLAIN_ATTRIBUTES = {"training", "device", "dtype", "config", "weight", "bias"}
SETTINGS = {"config"}  # those among them that hold no part of a module of Transformers


# Methods of nn.Module that do not run its forward and that no model describes.
QUIET_METHODS = {
    "train", "eval", "requires_grad_", "zero_grad", "register_buffer", "register_forward_hook",
    "register_forward_pre_hook", "register_full_backward_hook", "extra_repr", "share_memory",
    "get_parameter", "get_buffer", "apply", "buffers", "named_buffers", "double",
    "gradient_checkpointing_enable", "gradient_checkpointing_disable", "enable_input_require_grads",
    "print_trainable_parameters", "set_gradient_checkpointing", "get_input_embeddings",
    "get_output_embeddings", "num_parameters", "tie_weights",
}  # fmt: skip


# What `dir(nn.Module())` lists, without private names.
_MEMBERS_OF_MODULE = frozenset(
    "T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda "
    "double dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter "
    "get_submodule half ipu load_state_dict modules mtia named_buffers named_children "
    "named_modules named_parameters parameters register_backward_hook register_buffer "
    "register_forward_hook register_forward_pre_hook register_full_backward_hook "
    "register_full_backward_pre_hook register_load_state_dict_post_hook "
    "register_load_state_dict_pre_hook register_module register_parameter "
    "register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state "
    "set_submodule share_memory state_dict to to_empty train training type xpu zero_grad".split()
)
# Methods that `fully_shard` adds to a module.
ONLY_FSDP2_HAS = {
    "set_requires_gradient_sync", "set_requires_all_reduce", "set_is_last_backward",
    "set_reshard_after_forward", "set_reshard_after_backward", "set_modules_to_forward_prefetch",
    "set_modules_to_backward_prefetch", "reshard", "unshard",
}  # fmt: skip
# Attributes by which the wrappers of FSDP1 and DDP give the wrapped module.
WRAPPER_ATTRIBUTES = {"module", "_fsdp_wrapped_module"}


_WRAPPERS = {
    "fsdp1": "torch.distributed.fsdp.FullyShardedDataParallel",
    "ddp": "torch.nn.parallel.DistributedDataParallel",
}


def module_attribute(run: Run, module: ModuleValue, name: str, node: cst.CSTNode) -> Value:
    if name in {"_parameters", "__dict__"}:
        meta_device.leave_meta(run, [module])
    unset_buffers.note_read(run, module, name)
    if name in module.attributes:
        held = module.attributes[name]
        if isinstance(held, ParametersOf) and held.name:  # shared: its current state
            return take_parameters(run, replace(held, taken_at=None), element=True)
        if _sharded_by_now(run, module, held):
            return _own_parameter(run, module, name)
        return held
    if module.wrapper == "fsdp1" and name in {"module", "_fsdp_wrapped_module"}:
        return module.inner or Unknown()
    if module.wrapper == "ddp" and name == "module":
        return module.inner or Unknown()
    if module.wrapper == "compile" and name == "_orig_mod":
        return module.inner or Unknown()
    if name == "__class__":
        own = class_of_module(module) or searched_class(run, module, node)
        if own is not None:
            return own
    if module.cls is not None:
        found = module.cls.lookup(name)
        if found is not None:
            return bind(run, found, module, module.cls, node)
    if find_method(module, name) is not None or name in QUIET_METHODS or name == "forward":
        return Method(module, name)
    if module.wrapper and module.inner is not None:
        # FSDP1 and torch.compile look up missing attributes in the wrapped module
        return module_attribute(run, module.inner, name, node)
    info = run.trace.modules[module.id]
    if name in {"weight", "bias"} and _is_torch_layer(module):
        return _own_parameter(run, module, name)
    if name == "weight" and is_part_of_transformers(run, module):
        return _own_parameter(run, module, name)
    if name not in SETTINGS and (
        info.children_known or (module.cls is not None and not _inherits_parts(module.cls))
    ):
        return Method(module, name)
    delegate = module.attributes.get(DELEGATE)
    if name == "generate" and is_transformers_model(module):
        return Method(module, name)
    if isinstance(delegate, ModuleValue):
        return module_attribute(run, delegate, name, node)
    value = Unknown(origin=f"{info.class_name}.{name}", part_of=module)
    if name in PLAIN_ATTRIBUTES:
        value.part_of = None
    value.owner = Unknown(refined=module)
    module.attributes[name] = value
    return value


def class_of_module(module: ModuleValue) -> Class | Symbol | None:
    """What `type(module)` is; None if that is not known."""
    if module.wrapper in _WRAPPERS and not module.may_be_plain:
        return Symbol(_WRAPPERS[module.wrapper])
    if module.cls is not None:
        return module.cls
    known = module.library_class
    if known is None or known.rpartition(".")[2].startswith("Auto"):
        return None
    return Symbol(known)


def searched_class(run: Run, module: ModuleValue, node: cst.CSTNode) -> Symbol | None:
    """What stands for the unknown class of a model of a library in a loop that searches for parts:
    no class that the loop searches for.
    """
    name = module.library_class
    return Symbol(name) if name is not None and visits_modules(run, node) else None


def visits_modules(run: Run, node: cst.CSTNode) -> bool:
    """Whether a test checks the class of the elements of a loop over `x.modules()`.

    The test is then false for a module of unknown class: such a loop searches for parts, and
    another module stands for the unknown parts.
    """
    loop: cst.CSTNode | None = node
    while loop is not None and not isinstance(loop, cst.For | cst.BaseComp | cst.FunctionDef):
        loop = run.source.parent(loop)
    if isinstance(loop, cst.BaseComp):
        loop = loop.for_in
    if not isinstance(loop, cst.For | cst.CompFor):
        return False
    return re.search(r"\.(named_)?modules\(", run.text(loop.iter)) is not None


def _is_torch_layer(module: ModuleValue) -> bool:
    """Whether a module is of a class of torch.nn, or of one that derives from such a class."""
    names = [module.library_class or ""]
    if module.cls is not None:
        names = [base for base in module.cls.library_bases() if base != "torch.nn.Module"]
    return any(name.startswith("torch.nn.") for name in names)


def _inherits_parts(klass: Class) -> bool:
    """Whether objects of a class may have submodules that a base class makes."""
    return klass.has_unknown_base() or not inherited_structure(klass.library_bases())[0]


def _own_parameter(run: Run, module: ModuleValue, name: str) -> ParametersOf:
    one = take_parameters(run, ParametersOf((module,), complete=False), element=True)
    return replace(one, name=name)


def _sharded_by_now(run: Run, module: ModuleValue, held: Value) -> bool:
    """Whether this is an `nn.Parameter` of a sharded model that is not gathered here."""
    if not is_new_parameter(held) or run.calling:
        return False
    if any(held is late for _, _, late in run.new_parameters):  # nothing has sharded it
        return False
    return Groups(run.trace).owner(module.id) is not None


def lacks_wrapper_attribute(run: Run, value: Value, node: cst.Attribute) -> bool:
    """Whether an attribute of a wrapper is read from an FSDP2 model that certainly lacks it."""
    value = run.settle(value)
    if not lacks_attribute(run, value, node.attr.value) or catches_errors(run, node):
        return False
    assert isinstance(value, ModuleValue)
    run.emit(Fsdp1Used, node, api=node.attr.value, module=value.id)
    return True


def lacks_attribute(run: Run, value: Value, name: str) -> bool:
    """Whether a value is an FSDP2 model that certainly lacks an attribute of the wrappers."""
    if not isinstance(value, ModuleValue) or sharding_inside(run, value) is not Sharding.FSDP2:
        return False
    return certainly_lacks(run, value, name)


def certainly_lacks(run: Run, module: ModuleValue, name: str) -> bool:
    """Whether a module and its wrapper certainly have no attribute of this name."""
    if module.wrapper in {"fsdp1", "ddp"} or name in module.attributes:
        return False
    if module.inner is not None:
        return certainly_lacks(run, module.inner, name)
    info = run.trace.modules[module.id]
    if not info.children_known or name in info.children:
        return False
    own = module.cls
    if own is None:
        return True
    if any(own.lookup(one) is not None for one in (name, "__getattr__")):
        return False
    return not any(may_set(klass, name) for klass in own.mro())


def has_member(run: Run, module: ModuleValue, name: str) -> bool | None:
    """Whether a module of a class of the program has a method or attribute; None if unknown."""
    made_here = module.synthetic_for is None and not module.stands_for_parts
    if module.cls is None or module.wrapper or not made_here:
        return None
    if module.cls.lookup(name) is not None:
        return True
    bases = {"torch.nn.Module", *PLAIN_BASES}
    plain = not module.cls.has_unknown_base() and bases.issuperset(module.cls.library_bases())
    if not plain or name.startswith("_") or name in _MEMBERS_OF_MODULE | ONLY_FSDP2_HAS:
        return None
    return False if certainly_lacks(run, module, name) else None


def may_set(klass: Class, name: str) -> bool:
    """Whether any code of a class may set an attribute on its objects."""
    if klass.node is not klass.site.node:
        return False  # a call makes it, as `SimpleNamespace(...)` does
    text = klass.site.source.code(klass.node)
    ways = rf"\.{name}\b\s*(:[^=\n]*)?=[^=]|\bsetattr\b|\b(add|register)_module\b|__dict__"
    return re.search(ways, text) is not None


def element_of(run: Run, module: ModuleValue, index: Value) -> Value:
    """`module[index]`. An unknown index gives a part that may be any of several elements."""
    items = module.elements.items if module.elements is not None else []
    if isinstance(index, Const) and isinstance(index.value, int) and items:
        if -len(items) <= index.value < len(items):
            return items[index.value]
        return items[-1]
    if isinstance(index, Const) and isinstance(index.value, str):
        return module_attribute(run, module, index.value, cst.Name("element"))
    if len(items) == 1 or (items and _are_units(items)):
        return items[0]  # what is wrong for this one is wrong for all of them
    return hidden_child(run, module)


def _are_units(items: list[Value]) -> bool:
    """Whether all elements of a list are units of their own, sharded by the same API."""
    kinds = {(i.sharded, i.wrapper) if isinstance(i, ModuleValue) else None for i in items}
    return len(kinds) == 1 and not kinds & {None, (False, "")}

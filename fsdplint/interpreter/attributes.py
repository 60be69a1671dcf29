"""Attributes of values."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.interpreter import (
    gradient_writes,
    rank_local,
    tensor_marks,
)
from fsdplint.interpreter.autograd_functions import is_autograd_function
from fsdplint.interpreter.choices import module_with
from fsdplint.interpreter.chosen_members import (
    namespace_of,
    parsed_object,
)
from fsdplint.interpreter.functions import bind, call_function
from fsdplint.interpreter.imports import given_by_module, import_module, load_registrations
from fsdplint.interpreter.library_classes import is_module_class
from fsdplint.interpreter.mesh_sizes import mesh_attribute
from fsdplint.interpreter.meta_device import META_ATTRIBUTES, is_on_meta
from fsdplint.interpreter.models import tensors
from fsdplint.interpreter.models.registry import find_method
from fsdplint.interpreter.module_attributes import module_attribute
from fsdplint.interpreter.optimizers import state_by_parameter
from fsdplint.interpreter.own_dicts import entries_of, entry_as_attribute
from fsdplint.interpreter.parameter_marks import read_mark
from fsdplint.interpreter.ranks import (
    is_rank_name,
    of_argument,
    value_by_name,
)
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.tensor_devices import device_attribute
from fsdplint.interpreter.torch_values import (
    LoaderValue,
    LocalGradient,
    ModulePath,
    ParametersOf,
    PossibleLists,
    ShardTensor,
    StateValue,
    TensorValue,
    note_result_use,
)
from fsdplint.interpreter.training_modes import note_mode_read
from fsdplint.interpreter.transformers_models import layer_of_transformers
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Dict,
    Function,
    Instance,
    LibraryObject,
    Method,
    ModuleValue,
    Namespace,
    OptimizerValue,
    Partial,
    ProjectModule,
    Scope,
    Sequence,
    Super,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.syntax.qualified_names import canonical

# Attributes of a tensor or model output that are tensors of the same origin.
TENSOR_PARTS = {"loss", "logits", "data", "grad"}
# Attributes of what a function of a tensor returns, or a model, which no method is named like.
_RESULT_PARTS = {"indices", "last_hidden_state", "mT", "pooler_output", "T"}


LOADER_PARTS = {"sampler", "batch_sampler", "dataset"}


OPTIMIZER_PARTS = {"param_groups", "__dict__"}


def read_attribute(run: Run, value: Value, name: str, node: cst.CSTNode) -> Value:
    value = run.settle(value)
    if name == "weight":
        value = layer_of_transformers(run, value) or value
    if name == "grad":
        run.gradients_read_at = len(run.trace.events)
        gradient_writes.note_dropped(run)
    elif name == "training":
        note_mode_read(run, node)
    if isinstance(value, Symbol):
        return _symbol_attribute(run, value, name)
    if isinstance(value, ProjectModule):
        if name == "__dict__":
            return Namespace(value.scope)
        found = value.scope.names.get(name) or given_by_module(run, value, name)
        return found if found is not None else import_module(run, f"{value.name}.{name}")
    if isinstance(value, ModuleValue):
        return module_attribute(run, value, name, node)
    if isinstance(value, Instance):
        return _instance_attribute(run, value, name, node)
    if isinstance(value, Class):
        return _class_attribute(run, value, name)
    if isinstance(value, Super):
        return _super_attribute(run, value, name)
    if isinstance(value, Function) and name in ("__name__", "__qualname__"):
        return Const(value.name)
    if isinstance(value, Unknown) and value.on_cpu and name == "is_cuda":
        return Const(False)
    if isinstance(value, Unknown):
        found = (
            parsed_object(run, value, name, node)
            or _member_of_import(run, value, name, node)
            or _unknown_attribute(run, value, name)
        )
        if value in run.rows:
            tensor_marks.note_operation(run, name, [value], found)
        return found
    if isinstance(value, Const | Sequence | Dict) and name == "value":
        return value  # of a member of an enum, which stands for its value
    if isinstance(value, OptimizerValue) and name == "state":
        return state_by_parameter(run, value)
    if isinstance(value, OptimizerValue) and name in OPTIMIZER_PARTS:
        return optimizer_part(value, name)
    if isinstance(value, LibraryObject) and name in value.args:
        return value.args[name]
    if isinstance(value, LibraryObject):
        known = mesh_attribute(run, value, name) or device_attribute(run, value, name)
        if known is not None:
            return known
    if isinstance(value, LoaderValue) and name in LOADER_PARTS:
        return loader_part(value, name)
    if isinstance(value, ParametersOf) and value.element and name == "grad":
        run.gradients_used_at = len(run.trace.events)
        return tensors.gradient(run, value)
    if isinstance(value, ParametersOf) and value.element and name == "data":
        return value
    if isinstance(value, ParametersOf) and name in META_ATTRIBUTES and is_on_meta(run, value):
        return META_ATTRIBUTES[name]
    if isinstance(value, ShardTensor) and name == "_local_tensor":
        return tensors.local_tensor(run, value)
    if isinstance(value, ShardTensor | LocalGradient) and name == "data":
        return value
    if isinstance(value, TensorValue | StateValue) and name in TENSOR_PARTS:
        return value
    if type(value) is TensorValue and name in _RESULT_PARTS:
        return value
    read_mark(run, value, name, node)
    note_result_use(value)
    return Method(value, name)


def _member_of_import(run: Run, value: Unknown, name: str, node: cst.CSTNode) -> Value | None:
    """A member of one of the modules that an unknown name may mean; None if there is none."""
    wanted = run.named_imports.get(value)
    module = None if wanted is None else module_with(run, wanted, name, node)
    return read_attribute(run, module, name, node) if module is not None else None


def _symbol_attribute(run: Run, value: Symbol, name: str) -> Value:
    if namespace_of(value) is not None and name in ("get", "__getitem__"):
        return Method(value, name)
    last = value.name.rpartition(".")[2]
    if name in ("__name__", "__qualname__") and _is_named_class(value.name):
        return Const(last)
    full = canonical(f"{value.name}.{name}")
    project = import_module(run, full) if value.name in run.project.namespaces else None
    return project if project is not None else Symbol(full)


def _is_named_class(name: str) -> bool:
    """Whether a name is that of a layer of torch.nn, a wrapper, or a model of Transformers."""
    last = name.rpartition(".")[2]
    if name.startswith("transformers."):
        return is_module_class(name)
    return last.endswith("DataParallel") or (name.startswith("torch.nn.") and last[:1].isupper())


def _instance_attribute(run: Run, value: Instance, name: str, node: cst.CSTNode) -> Value:
    if name in value.attributes:
        return value.attributes[name]
    found = value.cls.lookup(name)
    if found is not None:
        return bind(run, found, value, value.cls, node)
    if name == "__class__":
        return value.cls
    if name == "__dict__":
        scope = Scope(value.cls.site.source, kind="class", names=value.attributes)
        return Namespace(scope, value)
    if find_method(value, name) is not None:
        return Method(value, name)
    held = entries_of(value)
    if held is not None and find_method(held, name) is not None:
        return Method(held, name)
    entry = entry_as_attribute(value, name)
    if entry is not None:
        return entry
    delegated = _result_of_getattr(run, value, name, node)
    if delegated is not None:
        return delegated
    result = value_by_name(name, f"{value.cls.name}.{name}")
    value.attributes[name] = result
    return result


def _result_of_getattr(run: Run, value: Instance, name: str, node: cst.CSTNode) -> Value | None:
    """What `__getattr__` of an object's class gives for a name; None if that is not known."""
    getter = value.cls.lookup("__getattr__")
    if not isinstance(getter, Function) or name.startswith("__"):
        return None
    if any(frame.function is getter and frame.receiver is value for frame in run.frames):
        return None  # it reads an attribute that `__init__` has not set
    found = run.settle(call_function(run, getter, value, [Const(name)], {}, node))
    return None if isinstance(found, Unknown) else found


def _class_attribute(run: Run, value: Class, name: str) -> Value:
    found = value.lookup(name)
    if isinstance(found, Const) and found.value is None and _is_set_later(run, value, name):
        load_registrations(run)
        found = value.lookup(name)
        if isinstance(found, Const):
            return Unknown(origin=f"{value.name}.{name}")
    if isinstance(found, Function) and "classmethod" in found.decorators:
        return Bound(found, value)
    if found is not None:
        return found
    if name in ("__name__", "__qualname__"):
        return Const(value.name)
    forward = value.lookup("forward") if name == "apply" else None
    if isinstance(forward, Function) and is_autograd_function(value):
        return Partial(forward, [Unknown()])
    if name == "__dict__":
        return Namespace(Scope(value.site.source, kind="class", names=value.attributes), value)
    return Method(value, name)


def _is_set_later(run: Run, cls: Class, name: str) -> bool:
    """Whether a method of a class sets an attribute of the class that is None at first.

    A registry is such an attribute: decorators fill it in files that are imported somewhere.
    """
    assigns = re.compile(rf"\bcls\.{re.escape(name)}\b(?:\s*:[^=\n]+)?\s*=(?!=)")
    if not any(f"cls.{name}" in one.site.source.text for one in cls.mro()):
        return False
    methods = [
        method
        for one in cls.mro()
        for method in one.attributes.values()
        if isinstance(method, Function) and assigns.search(one.site.source.code(method.node))
    ]
    function = run.frames[-1].function if run.frames else None
    return bool(methods) and not any(function is method for method in methods)


def _super_attribute(run: Run, value: Super, name: str) -> Value:
    cls = getattr(value.receiver, "cls", None)
    order = cls.mro() if isinstance(cls, Class) else value.owner.mro()
    after = order[order.index(value.owner) + 1 :] if value.owner in order else order
    for klass in after:
        if name in klass.attributes:
            return bind(run, klass.attributes[name], value.receiver, klass, klass.node)
    return Method(value, name)


# Methods of dicts that read all entries of a mapping of settings.
_VIEWS = {"copy", "items", "keys", "values"}


def _unknown_attribute(run: Run, value: Unknown, name: str) -> Value:
    if isinstance(value, PossibleLists | ModulePath) and find_method(value, name) is not None:
        return Method(value, name)
    if name not in value.parts:
        if isinstance(value.default, Dict) and name in _VIEWS:
            return Method(value.default, name)
        origin = f"{value.origin}.{name}" if value.origin else ""
        if value.part_of is None and is_rank_name(name):
            value.parts[name] = of_argument(run, value, name) or value_by_name(name, origin)
        else:
            value.parts[name] = Unknown(
                origin=origin,
                varying=value.varying,
                by_rank=value.by_rank,
                part_of=value.part_of,
                owner=value,
                library=value.library,
                argument=value.argument,
                rank_local=None
                if value in run.library_parts
                else rank_local.read_from(value, name),
            )
    return value.parts[name]


def optimizer_part(optimizer: OptimizerValue, name: str) -> Value:
    """The parameter groups (or `__dict__`) of an optimizer. A change of them changes it."""
    if name == "__dict__":
        return Dict(open=True, optimizer=optimizer)
    held = ParametersOf(optimizer.modules, optimizer=optimizer)
    group = Dict({"params": held}, open=True, optimizer=optimizer)
    return Sequence([group], open=True, optimizer=optimizer)


def loader_part(loader: LoaderValue, name: str) -> Value:
    """The dataset or sampler of a DataLoader."""
    if name == "dataset":
        return loader.dataset or Unknown()
    if loader.sampler is None:
        return Unknown()
    if name == "batch_sampler":
        return LibraryObject("torch.utils.data.BatchSampler", {"sampler": loader.sampler})
    return loader.sampler

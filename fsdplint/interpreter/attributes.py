"""Attributes and elements of values."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.interpreter import (
    gradient_writes,
    padded_tensors,
    possible_lists,
    rank_local,
    tensor_marks,
)
from fsdplint.interpreter.choices import entry_of, read_entry
from fsdplint.interpreter.chosen_members import (
    is_strategy_class,
    member,
    namespace_of,
    parsed_object,
)
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.functions import bind, call_function
from fsdplint.interpreter.group_options import first_group
from fsdplint.interpreter.imports import given_by_module, import_module, load_registrations
from fsdplint.interpreter.library_classes import is_module_class
from fsdplint.interpreter.meta_device import META_ATTRIBUTES, is_on_meta
from fsdplint.interpreter.models import tensors
from fsdplint.interpreter.models.registry import find_method
from fsdplint.interpreter.module_attributes import element_of, module_attribute
from fsdplint.interpreter.object_comparison import equals_no_text
from fsdplint.interpreter.optimizers import state_by_parameter
from fsdplint.interpreter.own_dicts import as_dict, entries_of, entry_as_attribute
from fsdplint.interpreter.parameter_marks import read_mark
from fsdplint.interpreter.program_arguments import each_argument, is_argv, is_literal_index
from fsdplint.interpreter.ranks import (
    depends_on_rank,
    environment,
    is_rank_name,
    of_argument,
    value_by_name,
)
from fsdplint.interpreter.records import as_tuple
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.state_edits import note_entry_read
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
    constant,
)
from fsdplint.syntax.qualified_names import canonical
from fsdplint.trace import PickedByRank
from fsdplint.trace.arguments import MESH_PART

# Attributes of a tensor or model output that are tensors of the same origin.
TENSOR_PARTS = {"loss", "logits", "data", "grad"}
# Attributes of what a function of a tensor returns, or a model, which no method is named like.
_RESULT_PARTS = {"indices", "last_hidden_state", "mT", "pooler_output", "T"}


LOADER_PARTS = {"sampler", "batch_sampler", "dataset"}


_AUTOGRAD = {"torch.autograd.Function", "torch.autograd.function.Function"}
OPTIMIZER_PARTS = {"param_groups", "__dict__"}


def read_attribute(run: Run, value: Value, name: str, node: cst.CSTNode) -> Value:
    value = run.settle(value)
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
        found = parsed_object(run, value, name, node) or _unknown_attribute(run, value, name)
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
    if isinstance(forward, Function) and _AUTOGRAD & set(value.library_bases()):
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
                rank_local=rank_local.read_from(value, name),
            )
    return value.parts[name]


def subscript(run: Run, value: Value, index: Value, node: cst.CSTNode) -> Value:
    value = run.settle(value)
    note_result_use(value)
    value = as_tuple(value) or value
    if depends_on_rank(index):
        run.emit(PickedByRank, node)
    if isinstance(value, Instance) and isinstance(value.cls.lookup("__getitem__"), Function):
        return run.call(read_attribute(run, value, "__getitem__", node), Call(node, [index]))
    value = as_dict(value)
    if isinstance(value, ModuleValue):
        return element_of(run, value, index)
    if isinstance(value, Dict):
        found = read_entry(run, value, index.value) if isinstance(index, Const) else None
        if found is not None:
            return found
        if isinstance(index, Symbol) and index.name in value.items:
            return value.items[index.name]
        if len(value.tensors) == 1 and not isinstance(index, Const):
            return next(iter(value.tensors.values()))
        if value.factory is not None:
            if not isinstance(index, Const):
                return _made_under_unknown_key(run, value, value.factory, node)
            if not value.has(index.value):
                return _made_entry(run, value, index.value, node)
        if isinstance(index, Const):
            local = rank_local.of_every_element(value)
            return _parameter_in(run, value, index.value) or Unknown(
                origin=run.text(node), rank_local=local
            )
        chosen = entry_of(run, value, index, node)
        if chosen is None:
            chosen = possible_lists.entries(run, value, index, node)
        return chosen if chosen is not None else _unknown_entry(run, value, node)
    if isinstance(value, Sequence):
        first = first_group(value) if constant(index) == 0 else None
        if first is not None:
            return first
        if isinstance(index, Const) and isinstance(index.value, int):
            if -len(value.items) <= index.value < len(value.items) and not value.open:
                return value.items[index.value]
        if len(value.items) == 1:
            return value.items[0]
        return possible_lists.entries(run, value, index, node) or Unknown()
    if isinstance(value, Symbol) and value.name == "os.environ":
        return environment(index)
    if isinstance(value, Symbol) and value.name == "sys.modules" and isinstance(index, Const):
        scope = run.module_scopes.get(str(index.value))
        if scope is not None:
            return ProjectModule(scope.module_name, scope)
        return run.settle(import_module(run, str(index.value)))
    if isinstance(value, Symbol) and (owner := namespace_of(value)) is not None:
        if isinstance(index, Const):
            return read_attribute(run, owner, str(index.value), node)
        return member(run, owner, index, node) or Unknown(origin=run.text(node))
    if is_strategy_class(value):
        if isinstance(index, Const):
            return read_attribute(run, value, str(index.value), node)
        return member(run, value, index, node) or Unknown(origin=run.text(node))
    if isinstance(value, Namespace):
        if isinstance(index, Const):
            found = value.scope.names.get(index.value)
        else:
            found = member(run, value, index, node)
        return found if found is not None else Unknown(origin=run.text(node))
    if isinstance(value, LibraryObject) and value.name.endswith(".init_device_mesh"):
        return LibraryObject(MESH_PART, {"whole": value, "chosen": index})
    if isinstance(value, StateValue):
        note_entry_read(run, value, index, node)
        return value.entry(index)
    if isinstance(value, ShardTensor):
        return TensorValue("derived", value.modules)
    if isinstance(value, TensorValue):
        return value
    if is_argv(value):
        in_turn = run.loop_depth and not is_literal_index(node)
        return each_argument() if in_turn else Unknown(origin=run.text(node))
    if isinstance(value, Class | Symbol):
        return value  # Generic[T], tuple[int, ...]
    if isinstance(value, PossibleLists):
        return possible_lists.entry(run, value, index) or _unknown_element(value, index)
    if isinstance(value, Unknown):
        element = _unknown_element(value, index)
        if run.padded:
            padded_tensors.note_element(run, value, index, element)
        return element
    return Unknown()


def _made_entry(run: Run, value: Dict, key: object, node: cst.CSTNode) -> Value:
    """The new entry of a `defaultdict`, also if it may have the key already."""
    assert value.factory is not None
    made = run.settle(run.call(value.factory, Call(node)))
    if value.has(key) is False or isinstance(made, Sequence | Dict):
        run.note_change(value)
        value.items[key] = made
    if value.has(key) is None and isinstance(made, Sequence | Dict):
        made.open = True
    return made


def _made_under_unknown_key(run: Run, value: Dict, factory: Value, node: cst.CSTNode) -> Value:
    """The entry of a `defaultdict` under an unknown key, which may be new."""
    made = run.settle(run.call(factory, Call(node)))
    if not isinstance(made, Sequence | Dict):
        return _unknown_entry(run, value, node)
    text = run.text(node.slice[0]) if isinstance(node, cst.Subscript) else "*"
    return possible_lists.entry_or_new(run, value, text, made)


def _unknown_entry(run: Run, value: Dict, node: cst.CSTNode) -> Unknown:
    result = Unknown(origin=run.text(node))
    entries = [run.settle(entry) for entry in value.items.values()]
    result.symbolic = not value.open and bool(entries) and all(map(equals_no_text, entries))
    return result


def _unknown_element(value: Unknown, index: Value) -> Value:
    """The element of an unknown value; the same one for the same constant index."""
    key = f"[{index.value!r}]" if isinstance(index, Const) else "[]"
    if key not in value.parts:
        value.parts[key] = _new_element(value, index, key)
    return value.parts[key]


def _new_element(value: Unknown, index: Value, key: str) -> Value:
    origin = f"{value.origin}{key}" if value.origin and key != "[]" else ""
    if isinstance(index, Const) and isinstance(index.value, str) and value.part_of is None:
        named = value_by_name(index.value, origin)
        if isinstance(named, Unknown):
            named.library = value.library
            named.argument = value.argument
            named.by_process = value.by_process or value.by_rank
        if not isinstance(named, Unknown) or named.origin != origin or value.rank_local is None:
            return named
    return Unknown(
        origin=origin,
        varying=value.varying or (isinstance(index, Unknown) and index.varying),
        part_of=value.part_of,
        by_process=value.by_process or value.by_rank,
        library=value.library,
        argument=value.argument,
        rank_local=value.rank_local,
    )


def _parameter_in(run: Run, value: Dict, name: object) -> Value | None:
    """The parameter of this name in a dict of all parameters of a module; None if unknown."""
    held = value.tensors.get("*")
    if not isinstance(name, str) or not isinstance(held, ParametersOf) or held.unsharded_copy:
        return None
    if not held.element or held.filtered_by or len(held.modules) != 1:
        return None
    return parameter_by_name(run, held.modules[0], name)


def parameter_by_name(run: Run, module: ModuleValue, path: str) -> Value:
    """The parameter of this name in `named_parameters()`; Unknown if it is not found."""
    found: Value = module
    for part in path.split("."):
        found = run.settle(found)
        if isinstance(found, ModuleValue) and part.isdigit():
            found = element_of(run, found, Const(int(part)))
        else:
            found = read_attribute(run, found, part, cst.Name(part))
    return found if isinstance(found, ParametersOf | Unknown) else Unknown()


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

"""The elements of lists, dicts and other values: `value[index]`."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import (
    own_sizes,
    padded_tensors,
    possible_lists,
    rank_local,
)
from fsdplint.interpreter.attributes import read_attribute
from fsdplint.interpreter.choices import entry_of, read_entry
from fsdplint.interpreter.chosen_members import (
    is_strategy_class,
    member,
    namespace_of,
)
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.group_options import first_group
from fsdplint.interpreter.imports import import_module
from fsdplint.interpreter.module_attributes import element_of
from fsdplint.interpreter.object_comparison import equals_no_text
from fsdplint.interpreter.own_dicts import as_dict
from fsdplint.interpreter.program_arguments import each_argument, is_argv, is_literal_index
from fsdplint.interpreter.ranks import (
    depends_on_rank,
    environment,
    value_by_name,
)
from fsdplint.interpreter.records import as_tuple
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.state_edits import note_entry_read
from fsdplint.interpreter.torch_values import (
    ParametersOf,
    PossibleLists,
    ShardTensor,
    StateValue,
    TensorValue,
    note_result_use,
)
from fsdplint.interpreter.values import (
    Class,
    Const,
    Dict,
    Function,
    Instance,
    LibraryObject,
    ModuleValue,
    Namespace,
    ProjectModule,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace import PickedByRank
from fsdplint.trace.arguments import MESH_PART


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
        if run.has_own_data:
            own_sizes.note_element(value, index, element)
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
        by_process=value.by_process or value.by_rank or depends_on_rank(index),
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

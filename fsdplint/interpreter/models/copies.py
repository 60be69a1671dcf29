"""Copies of values: `copy.copy` and `copy.deepcopy`."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from fsdplint.interpreter import unknown_entries
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.functions import call_function
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.module_tree import child_values
from fsdplint.interpreter.modules import new_module
from fsdplint.interpreter.own_dicts import ENTRIES, entries_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf, StateValue, derived
from fsdplint.interpreter.values import (
    Dict,
    Function,
    Instance,
    ModuleValue,
    OptimizerValue,
    Sequence,
    Unknown,
    Value,
)
from fsdplint.trace import ModuleCopied

_MAX_DEPTH = 3  # of dicts in dicts


@function("copy.deepcopy", "copy.copy")
def copy(run: Run, name: str, call: Call) -> Value:
    value = run.settle(call.args[0]) if call.args else Unknown()
    if isinstance(value, ModuleValue):
        return _copy_of_module(run, name, value, call)
    return _ObjectCopies(run, name, call).of(value, _MAX_DEPTH if name == "copy.deepcopy" else 0)


def _copy_of_module(run: Run, name: str, value: ModuleValue, call: Call) -> ModuleValue:
    duplicate = duplicate_module(run, value, call)
    run.emit(ModuleCopied, call.node, module=value.id, copy=duplicate.id, api=name)
    return duplicate


def _copy_of(value: Value, partial: bool) -> Value:
    """The copy of a value that is no module.

    partial: whether only some ranks make it.
    """
    if isinstance(value, Unknown):
        return unknown_entries.copy_of(value)
    if (entries := entries_of(value)) is not None and isinstance(value, Instance):
        items = {key: _copy_of(one, partial) for key, one in entries.items.items()}
        held = replace(entries, items=items)
        return Instance(value.cls, {**value.attributes, ENTRIES: held})
    if isinstance(value, Sequence):
        return replace(value, items=[_copy_of_parameter(one, partial) for one in value.items])
    if isinstance(value, Dict) and _holds_tensors(value):
        items = {key: _copy_of_parameter(part, partial) for key, part in value.items.items()}
        tensors = {key: _copy_of_parameter(part, partial) for key, part in value.tensors.items()}
        return replace(value, items=items, tensors=tensors)
    return _copy_of_parameter(value, partial)


class _ObjectCopies:
    """One copy of a value that is no module, and of what is in it.

    A class may copy its objects in its own way.
    """

    def __init__(self, run: Run, name: str, call: Call) -> None:
        self._run, self._name, self._call = run, name, call
        self._copies: dict[Value, Value] = {}

    def of(self, value: Value, depth: int) -> Value:
        """The copy of a value, with copies of its parts up to some depth."""
        copied = _copy_of(value, self._run.ranks().partial)
        if copied is not value or not isinstance(value, Dict | Instance):
            return copied
        known = self._copies.get(value)
        if known is not None:
            return known
        if isinstance(value, Instance) and (own := self._by_own_method(value)) is not None:
            return own
        if isinstance(value, Dict):
            held = dict(value.items)
            removed = set(value.removed)
            made: Value = replace(
                value, items=held, removed=removed, optimizer=None, is_first=False
            )
        else:
            held = dict(value.attributes)
            made = replace(value, attributes=held)
        self._copies[value] = made
        if depth:
            for name, part in held.items():
                held[name] = self._of_part(self._run.settle(part), depth - 1)
        return made

    def _of_part(self, part: Value, depth: int) -> Value:
        """An optimizer in a deep copy is unknown: it has the copies of parameters."""
        if isinstance(part, OptimizerValue):
            return Unknown()
        if not isinstance(part, ModuleValue):
            return self.of(part, depth)
        if part not in self._copies:
            self._copies[part] = _copy_of_module(self._run, self._name, part, self._call)
        return self._copies[part]

    def _by_own_method(self, value: Instance) -> Value | None:
        """What `__deepcopy__` or `__copy__` of the class returns; None if it has none."""
        name = f"__{self._name.rpartition('.')[2]}__"
        method = value.cls.lookup(name)
        if not isinstance(method, Function):
            return None
        args: list[Value] = [Dict({})] if name == "__deepcopy__" else []
        return call_function(self._run, method, value, args, {}, self._call.node)


def _holds_tensors(value: Dict, depth: int = 0) -> bool:
    """Whether a dict has parameters or states, or a dict in it does."""
    return any(
        isinstance(part, ParametersOf | StateValue)
        or (isinstance(part, Dict) and depth < _MAX_DEPTH and _holds_tensors(part, depth + 1))
        for part in (*value.items.values(), *value.tensors.values())
    )


def _copy_of_parameter(value: Value, partial: bool) -> Value:
    if isinstance(value, Dict) and _holds_tensors(value):
        return _copy_of(value, partial)
    if isinstance(value, StateValue):
        return replace(value, itself=False, of_some_ranks=partial)
    return derived(value, partial=partial) if isinstance(value, ParametersOf) else value


def duplicate_module(run: Run, value: ModuleValue, call: Call) -> ModuleValue:
    """Copy a module with its submodules."""
    info = run.trace.modules[value.id]
    made = new_module(
        run,
        call.node,
        info.class_name,
        cls=value.cls,
        library_class=value.library_class,
        children_known=info.children_known,
        own_parameters=info.own_parameters,
        container=info.container,
    )
    made.sharded = value.sharded
    made.stands_for_parts = value.stands_for_parts
    made.by_mode = value.by_mode
    if value.id in run.modes:
        run.modes[made.id] = run.modes[value.id]
    if value.elements is not None:
        made.elements = Sequence([], "list")
    copies: dict[ModuleValue, ModuleValue] = {value: made}
    for name, child in zip(info.children, child_values(run, value), strict=False):
        duplicate = duplicate_module(run, child, call)
        copies[child] = duplicate
        run.trace.modules[duplicate.id].repeated = run.trace.modules[child.id].repeated
        if made.elements is not None:
            made.elements.items.append(duplicate)
        made.attributes[name] = duplicate
        run.trace.modules[made.id].children[name] = duplicate.id
    owner = Unknown(refined=made)
    for name, part in value.attributes.items():
        made.attributes.setdefault(name, _copied_part(run, part, copies, owner))
    return made


def _copied_part(
    run: Run, part: Value, copies: dict[ModuleValue, ModuleValue], owner: Unknown
) -> Value:
    """The attribute of the copy of a module for an attribute of the original.

    An unknown part becomes a child of the module that it was read from, once the program uses it as
    a module. An unknown method is called on its owner. So a copy needs its own unknown values.
    """
    part = run.settle(part)
    if isinstance(part, ModuleValue):
        return copies.get(part, part)
    if not isinstance(part, Unknown) or part.part_of not in copies and not _read_off(part, copies):
        return part
    within = None if part.part_of is None else copies.get(part.part_of)
    copied = replace(part, part_of=within, owner=owner, parts={})
    copied.parts = {
        name: _copied_part(run, inner, copies, copied) for name, inner in part.parts.items()
    }
    return copied


def _read_off(part: Unknown, modules: Container[ModuleValue | None]) -> bool:
    """Whether an unknown value was read from one of these modules, directly or indirectly."""
    owner: Unknown | None = part.owner
    while owner is not None and owner.refined is None:
        owner = owner.owner
    return owner is not None and owner.refined in modules

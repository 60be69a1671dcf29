"""Calls in a `state_dict_type` block that do not use the model's state."""

from __future__ import annotations

from pathlib import PurePath

import libcst as cst

from fsdplint.interpreter.values import Bound, Function, ModuleValue, OptimizerValue
from fsdplint.migration.context import Migration
from fsdplint.syntax.layout import descend

_BUILTINS = ("print", "len", "str", "int", "dict", "list", "isinstance", "min", "max", "range")
_LOGGING = ("debug", "info", "warning", "error")
_KINDS = (str, dict, list, PurePath)  # of objects that hold no model


def takes_no_state(migration: Migration, node: cst.Call) -> bool:
    """Whether a call certainly takes no state of a model that is not an argument of it."""
    return _takes_none(migration, node, set())


def _takes_none(migration: Migration, node: cst.Call, entered: set[cst.CSTNode]) -> bool:
    name = migration.symbol(node.func)
    if name.startswith(("torch.save", "torch.load", "torch.distributed.", "os.", "time.")):
        return True
    if isinstance(node.func, cst.Name) and node.func.value in _BUILTINS:
        return True
    if isinstance(node.func, cst.Attribute):
        method = node.func.attr.value
        if method in ("state_dict", "load_state_dict"):
            return is_no_model(migration, node.func.value)
        named = method in _LOGGING or any(hasattr(kind, method) for kind in _KINDS)
        if named and not _is_of_program(migration, node.func):
            return True
    return _runs_no_state_code(migration, node, entered)


def _is_of_program(migration: Migration, function: cst.BaseExpression) -> bool:
    """Whether a call may run a method of the program, such as `update` of a trainer."""
    return any(isinstance(one, Bound | Function) for one in migration.values(function))


def _runs_no_state_code(migration: Migration, node: cst.Call, entered: set[cst.CSTNode]) -> bool:
    """Whether all functions that a call may run are in these files, and take no state."""
    values = migration.values(node.func)
    found = [value.function if isinstance(value, Bound) else value for value in values]
    return bool(found) and all(
        isinstance(one, Function)
        and one.site.source in migration.sources
        and set(one.decorators) <= {"staticmethod", "classmethod"}
        and _is_without_state(migration, one, entered)
        for one in found
    )


def _is_without_state(migration: Migration, function: Function, entered: set[cst.CSTNode]) -> bool:
    if function.node in entered:
        return True
    entered.add(function.node)
    for part in descend(function.node.body):
        if isinstance(part, cst.Call) and not _takes_none(migration, part, entered):
            if not isinstance(function.site.source.parent(part), cst.Raise):
                return False
        if isinstance(part, cst.Name | cst.Attribute) and migration.wrapping_of(part):
            return False
    return True


def saves_no_model(migration: Migration, node: cst.Call) -> bool:
    """Whether `tokenizer.save_pretrained(...)` or the like saves something that is no model."""
    if not isinstance(node.func, cst.Attribute):
        return False
    if node.func.attr.value not in ("save_pretrained", "push_to_hub"):
        return False
    receiver = node.func.value
    if any(isinstance(value, ModuleValue) for value in migration.values(receiver)):
        return False
    name = receiver.attr if isinstance(receiver, cst.Attribute) else receiver
    words = name.value.lower() if isinstance(name, cst.Name) else ""
    return any(word in words for word in ("token", "processor", "config"))


def is_no_model(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether the object of a `state_dict` call is an optimizer, a scheduler or a scaler."""
    values = migration.values(node)
    if values:
        return all(isinstance(value, OptimizerValue) for value in values)
    name = node.attr if isinstance(node, cst.Attribute) else node
    words = name.value.lower() if isinstance(name, cst.Name) else ""
    return any(word in words for word in ("opt", "sched", "scaler"))

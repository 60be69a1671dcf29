"""Calls in a `state_dict_type` block that do not use the model's state."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import ModuleValue, OptimizerValue
from fsdplint.migration.context import Migration


def takes_no_state(migration: Migration, node: cst.Call) -> bool:
    """Whether a call certainly takes no state of a model that is not an argument of it."""
    name = migration.symbol(node.func)
    if name.startswith(("torch.save", "torch.load", "torch.distributed.", "os.", "time.")):
        return True
    if isinstance(node.func, cst.Name):
        return node.func.value in ("print", "len", "str", "int", "dict", "list")
    if not isinstance(node.func, cst.Attribute):
        return False
    method = node.func.attr.value
    if method in ("state_dict", "load_state_dict"):
        return is_no_model(migration, node.func.value)
    return method in ("join", "info", "format", "items", "keys")


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

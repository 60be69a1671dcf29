"""What a node of the program was before it is evaluated again.

A function may get a wrapped and an unwrapped model, or the parameters of several models, and an
item of a dict may have been made at several places.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.torch_values import ParametersOf, is_new_parameter
from fsdplint.interpreter.values import Function, LibraryObject, ModuleValue, Partial, Value

_MADE = (Function, LibraryObject, Partial)
Evaluations = dict[cst.CSTNode, Value]
Earlier = dict[cst.CSTNode, dict[str, Value]]


def keep(evaluations: Evaluations, earlier: Earlier, node: cst.CSTNode, value: Value) -> None:
    """Keep the value that a node had, if it is another one than the new value.

    earlier: the values that are kept, for each node by what tells them apart.
    """
    if isinstance(value, ModuleValue):
        key = _of_module(evaluations.get(node), value)
    elif isinstance(value, _MADE) and isinstance(node, cst.Call | cst.Subscript):
        key = _of_object(evaluations.get(node), value)
    elif isinstance(value, ParametersOf) or is_new_parameter(value):
        key = _of_parameters(evaluations.get(node), value)
    else:
        return
    if key is not None:
        earlier.setdefault(node, {})[key] = evaluations[node]


def _of_module(before: Value | None, value: ModuleValue) -> str | None:
    if isinstance(before, ModuleValue) and before.wrapper != value.wrapper:
        return before.wrapper
    return None


def _of_object(before: Value | None, value: Value) -> str | None:
    if isinstance(before, _MADE) and before.created_at is not None:
        made = value.created_at
        if made is not None and made.node is not before.created_at.node:
            return f"{id(before.created_at.node)}"
    return None


def _of_parameters(before: Value | None, value: Value) -> str | None:
    if is_new_parameter(before) and before is not value:
        return f"parameter {id(before)}"
    if isinstance(before, ParametersOf) and (
        not isinstance(value, ParametersOf) or before.modules != value.modules
    ):
        return f"parameters {' '.join(module.id for module in before.modules)}"
    return None

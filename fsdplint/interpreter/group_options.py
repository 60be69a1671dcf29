"""Options of the parameter groups of an optimizer that a program sets: `group["lr"] = rate`."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Dict, Value, constant
from fsdplint.trace import GroupOptionSet


def note_option(
    run: Run, target: cst.Subscript, container: Value, key: Value, value: Value
) -> None:
    """Note that a program sets an entry of a dict, which may be a group of an optimizer."""
    option = constant(key)
    if not isinstance(container, Dict) or container.optimizer is None:
        return
    if not isinstance(option, str) or option == "params":
        return
    run.emit(
        GroupOptionSet,
        target,
        optimizer=container.optimizer.id,
        option=option,
        differs=local_of(run.settle(value)) is not None,
        of_first=_is_first(target.value),
    )


def _is_first(group: cst.BaseExpression) -> bool:
    """Whether an expression is `optimizer.param_groups[0]`."""
    if not isinstance(group, cst.Subscript) or len(group.slice) != 1:
        return False
    index = group.slice[0].slice
    of_groups = isinstance(group.value, cst.Attribute) and group.value.attr.value == "param_groups"
    return (
        of_groups
        and isinstance(index, cst.Index)
        and isinstance(index.value, cst.Integer)
        and index.value.value == "0"
    )

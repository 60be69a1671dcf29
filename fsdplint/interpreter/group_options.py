"""Options of the parameter groups of an optimizer that a program sets: `group["lr"] = rate`."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Dict, Sequence, Value, constant
from fsdplint.trace import GroupOptionSet


def first_group(groups: Sequence) -> Dict | None:
    """The first of the parameter groups of an optimizer; None if a list holds anything else.

    The list has one dict that stands for all groups.
    """
    group = groups.items[0] if groups.optimizer is not None and groups.items else None
    return replace(group, is_first=True) if isinstance(group, Dict) else None


def groups_for_targets(groups: Sequence, count: int) -> list[Value]:
    """The groups that `first, second = optimizer.param_groups` assigns."""
    first = first_group(groups)
    return [] if first is None else [first, *[groups.items[0]] * (count - 1)]


def any_group(value: Value) -> Value:
    """A group that stands for further ones."""
    return replace(value, is_first=False) if isinstance(value, Dict) and value.is_first else value


def note_option(run: Run, node: cst.CSTNode, container: Value, key: Value, value: Value) -> None:
    """Note that a program sets an entry of a dict, which may be a group of an optimizer."""
    option = constant(key)
    if not isinstance(container, Dict) or container.optimizer is None:
        return
    if not isinstance(option, str) or option == "params":
        return
    run.emit(
        GroupOptionSet,
        node,
        optimizer=container.optimizer.id,
        option=option,
        differs=local_of(run.settle(value)) is not None,
        of_first=container.is_first,
    )


def note_update(run: Run, receiver: Dict, call: Call) -> None:
    """Note the entries that `group.update(lr=rate)` sets."""
    entries = dict(call.kwargs)
    for given in map(run.settle, call.args):
        if isinstance(given, Dict):
            entries.update({key: one for key, one in given.items.items() if isinstance(key, str)})
    for key, value in entries.items():
        note_option(run, call.node, receiver, Const(key), value)

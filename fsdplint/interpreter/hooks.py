"""Hooks: functions that modules, parameters and optimizers call when something happens to them.

A hook is executed when it fires for the first time. What it does may also happen later or never: a
module has hooks of its own that shard and gather its parameters, and their order is not followed.
Nothing is known of the gradients of a program whose hooks set some to zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import libcst as cst

from fsdplint.interpreter import gradient_writes, lazy
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Bound, Function, Instance, Partial, Value


class Moment(Enum):
    """When a hook fires."""

    BEFORE_FORWARD = "before forward"
    AFTER_FORWARD = "after forward"
    BACKWARD = "backward"
    BEFORE_STEP = "before step"
    AFTER_STEP = "after step"


@dataclass(eq=False)
class Hook:
    """A hook that is registered and has not fired.

    Attributes:
        moment: when it fires.
        owner: the module or optimizer that it belongs to; None if it fires in any backward.
        function: what it calls.
        values: the arguments.
    """

    moment: Moment
    owner: Value | None
    function: Value
    values: list[Value]


def register(
    run: Run, moment: Moment, owner: Value | None, function: Value | None, values: list[Value]
) -> None:
    """Note a hook; one that has no code in the program is left out."""
    run.hooked |= moment in (Moment.BEFORE_FORWARD, Moment.AFTER_FORWARD)
    function = run.settle(function) if function is not None else None
    if isinstance(function, Function | Bound | Partial | Instance):
        run.hooks.append(Hook(moment, owner, function, values))


def fire(run: Run, moment: Moment, node: cst.CSTNode, *owners: Value) -> None:
    """Execute the hooks of some owners; those of a moment that names none in any case."""
    due = [
        hook
        for hook in run.hooks
        if hook.moment is moment and (hook.owner is None or any(hook.owner is o for o in owners))
    ]
    if not due:
        return
    run.hooks = [hook for hook in run.hooks if hook not in due]
    with run.in_unknown_call(node), gradient_writes.in_hooks(run):
        for hook in due:
            lazy.consume(run, run.call(hook.function, Call(node, list(hook.values))))

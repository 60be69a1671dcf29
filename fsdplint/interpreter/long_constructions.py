"""Modules whose construction takes very many steps.

A program may do much bookkeeping for each module and parameter while it builds its model. The
training comes after that. So from some step of a construction on, the functions that it calls are
not executed: what they do is unknown, as if their code were out of sight.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fsdplint.interpreter.escape import escape
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.repeated_work import forget
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Function, Instance, ModuleValue, Value

MAX_STEPS = 100_000  # of the outermost construction
MAX_STEPS_ALONE = 25_000  # of one for a function that no program calls
MAX_FURTHER_STEPS = 5_000  # of one after another one was too long


@contextmanager
def construction(run: Run) -> Iterator[None]:
    """A context in which a module is constructed."""
    outermost = run.construction_end is None
    if outermost:
        most = MAX_STEPS if run.trace.entry else MAX_STEPS_ALONE
        if run.construction_cut is not None:
            most = MAX_FURTHER_STEPS
        run.construction_end = run.steps + most
    try:
        yield
    finally:
        if outermost:
            run.construction_end = None


def is_too_long(run: Run) -> bool:
    """Whether what is executed is part of a construction that took very many steps."""
    return run.construction_end is not None and run.steps > run.construction_end


def leave_out(run: Run, function: Function, receiver: Value | None, call: Call) -> None:
    """Forget what a function that is not executed may have changed."""
    if run.construction_cut is None:
        run.construction_cut = run.out_of_steps("a module takes too many steps to be built")
    given = [*([receiver] if receiver is not None else []), *call.values]
    for value in map(run.settle, given):
        if isinstance(value, ModuleValue):
            run.trace.modules[value.id].children_known = False
        elif isinstance(value, Instance):
            value.attributes_unknown = True
    forget(run, function, given)
    escape(run, Call(call.node, given))

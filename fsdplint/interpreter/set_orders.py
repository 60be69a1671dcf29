"""Uses of the order of a set of texts, which is another one in each process.

Python gives the hash of a text another seed in each process, unless PYTHONHASHSEED is set.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Sequence, Value
from fsdplint.trace import Called, Collective, Ranks, SetOrderUsed

_NO_DATA = frozenset({"barrier", "monitored_barrier"})
_FEWEST = 2  # elements that can be in different orders


def has_order_of_set(run: Run, value: Value) -> bool:
    """Whether a value is a set of texts, or a list that has the order of one."""
    if not isinstance(value, Sequence):
        return False
    if value in run.set_orders:
        return True
    texts = [one for one in value.items if isinstance(one, Const) and isinstance(one.value, str)]
    return value.kind == "set" and bool(texts) and (value.open or len(value.items) >= _FEWEST)


def note_list(run: Run, value: Value, made: Value) -> None:
    """Note that a list or tuple was made of a value, in its order."""
    if has_order_of_set(run, value):
        run.set_orders.add(made)


def forget_order(run: Run, value: Value) -> None:
    """Note that a list was sorted."""
    run.set_orders.discard(value)


def note_loop(run: Run, node: cst.CSTNode, visited: Value, begin: int) -> None:
    """Note that a loop over a value runs collectives with data. begin: the number of events before
    it."""
    if run.ranks() is not Ranks.ALL or run.decisions.single_rank:
        return
    if not has_order_of_set(run, visited):
        return
    inside = [one for one in run.trace.events[begin:] if isinstance(one, Called | Collective)]
    inside = [one for one in inside if not (isinstance(one, Collective) and one.api in _NO_DATA)]
    if any(one.collective and not one.ranks.partial for one in inside):
        run.emit(SetOrderUsed, node, runs_collectives=True)


def note_part(run: Run, node: cst.CSTNode, value: Value) -> None:
    """Note that each rank takes its part of a list."""
    if has_order_of_set(run, value) and not run.decisions.single_rank:
        run.emit(SetOrderUsed, node)

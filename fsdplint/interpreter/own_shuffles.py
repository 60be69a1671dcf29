"""Lists that each rank shuffles with a seed of its own, and what the program makes of them."""

from __future__ import annotations

import re

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unseeded import is_unseeded
from fsdplint.interpreter.values import (
    Instance,
    LibraryObject,
    Method,
    Sequence,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.trace import PickedByRank, Ranks, Site

_SHUFFLES = ("numpy.random.shuffle", "random.shuffle")  # in place
_SORTS = ("builtins.sorted", "numpy.sort")
# After these, ranks may have the order of another rank.
_SENDS = re.compile(r"torch\.distributed\.(broadcast|scatter|all_gather|gather|recv|all_to_all)")


def note_call(run: Run, function: Value, call: Call) -> None:
    """Note the list that a call shuffles, if all ranks have it."""
    if run.own_shuffles and _may_agree(run, function, call):
        run.own_shuffles.clear()
    if not isinstance(function, Symbol) or function.name not in _SHUFFLES:
        return
    held = run.settle(call.arg(0, "x") or Unknown())
    run.own_shuffles.pop(held, None)
    library = function.name.rpartition(".")[0]
    own = library in run.own_seeds or is_unseeded(run, library)
    own = own and not run.decisions.single_rank
    if not own or run.ranks() is not Ranks.ALL or any(run.trace.of(PickedByRank)):
        return
    if isinstance(held, Sequence | Unknown) and local_of(held) is None:
        run.own_shuffles[held] = run.site(call.node)


def _may_agree(run: Run, function: Value, call: Call) -> bool:
    """Whether ranks may have the same order after a call."""
    if isinstance(function, Symbol):
        if _SENDS.match(function.name):
            return True
        return function.name in _SORTS and any(_is_own(run, one) for one in call.values[:1])
    if not isinstance(function, Method) or function.name != "sort":
        return False
    return _is_own(run, function.receiver)


def _is_own(run: Run, value: Value) -> bool:
    return run.settle(value) in run.own_shuffles


def note_slice(run: Run, value: Value, part: Value) -> None:
    """A slice of a list has the order of the list."""
    if value in run.own_shuffles and local_of(part) is None:
        run.own_shuffles[part] = run.own_shuffles[value]


def shuffled_at(run: Run, dataset: Value | None) -> Site | None:
    """Where each rank shuffles a dataset, or what it holds, for itself; None if nowhere."""
    held = run.settle(dataset) if dataset is not None else None
    if held is None or not run.own_shuffles:
        return None
    if held in run.own_shuffles:
        return run.own_shuffles[held]
    parts: list[Value] = []
    if isinstance(held, Instance):
        parts = list(held.attributes.values())
    elif isinstance(held, LibraryObject):
        parts = list(held.args.values())
    found = (run.own_shuffles.get(run.settle(part)) for part in parts)
    return next((site for site in found if site is not None), None)

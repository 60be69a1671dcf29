"""Functions of `itertools` that group the elements of an iterable: `pairwise`, `batched`, ..."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, zip_longest

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.iteration import iterate, read_all
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import Batches, ParametersOf
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import Const, Sequence, Unknown, Value, constant


def _elements(run: Run, call: Call) -> list[Value] | None:
    """The elements of the first argument; None if not all of them are known."""
    if not call.args or call.open or isinstance(run.settle(call.args[0]), Batches):
        return None
    items, exact = iterate(run, call.args[0])
    return items if exact else None


@function("itertools.pairwise")
def neighbours(run: Run, name: str, call: Call) -> Value:
    items = _elements(run, call)
    if items is None:
        return unknown_result(call)
    return Sequence([Sequence(list(pair), "tuple") for pair in pairwise(items)], "list")


@function("itertools.batched", "more_itertools.chunked", "more_itertools.batched")
def batches(run: Run, name: str, call: Call) -> Value:
    items, size = _elements(run, call), constant(call.arg(1, "n") or Const(None))
    if items is None or type(size) is not int or size < 1:
        return unknown_result(call)
    rows = [items[at : at + size] for at in range(0, len(items), size)]
    return Sequence([Sequence(list(row), "tuple") for row in rows], "list")


@function("itertools.zip_longest")
def longest_zip(run: Run, name: str, call: Call) -> Value:
    columns = [_elements(run, replace(call, args=[one])) for one in call.args]
    known = [column for column in columns if column is not None]
    if len(known) < len(columns):
        return unknown_result(call)
    fill = call.kwargs.get("fillvalue", Const(None))
    rows = zip_longest(*known, fillvalue=fill)
    return Sequence([Sequence(list(row), "tuple") for row in rows], "list")


@function("itertools.groupby")
def groups(run: Run, name: str, call: Call) -> Value:
    """Pairs of a key and some of the elements: one pair stands for all."""
    if not call.args or isinstance(run.settle(call.args[0]), Batches):
        return unknown_result(call)
    taken = read_all(run, call.args[0])
    items = [_of_a_group(item) for item in taken.items]
    group = replace(taken, items=items, open=True, every=False)
    return Sequence([Sequence([Unknown(varying=True), group], "tuple")], "list", open=True)


def _of_a_group(item: Value) -> Value:
    """An element that stands for each parameter, where each is in one of the groups."""
    if isinstance(item, Sequence):
        return replace(item, items=[_of_a_group(one) for one in item.items])
    return replace(item, every=False) if isinstance(item, ParametersOf) else item

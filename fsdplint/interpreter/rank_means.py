"""Sums over all ranks that a program takes for a mean.

Each rank computes the mean over its own share of the data. An `all_reduce` that adds the means of
the ranks gives a number that is too large by the number of ranks, until the program divides it by
this number. So does a total of all ranks that is divided by the size of one rank's share.

What is noted here is certain. Any further operation on such a sum, but those that keep its value,
may correct it.
"""

from __future__ import annotations

from typing import TypeGuard

from fsdplint.interpreter import own_quotients
from fsdplint.interpreter.amounts import amount_of, note, note_operation, note_sum
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.losses import is_sum
from fsdplint.interpreter.rank_local import local_of, of_loader
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.shown_values import shows
from fsdplint.interpreter.torch_values import LoaderValue, SamplerValue, TensorValue
from fsdplint.interpreter.values import Const, Dict, Sequence, Symbol, Unknown, Value
from fsdplint.trace import MeansSummed

_NUMBERS = frozenset({"builtins.float", "builtins.round", "math.exp"})
_MEANS = frozenset({"numpy.mean", "statistics.fmean", "statistics.mean"})
MAX_DEPTH = 2  # of lists and dicts that a call gets


def note_call(run: Run, function: Value, call: Call, result: Value) -> None:
    """A call of a function that is no operation of torch, which may show a number."""
    if isinstance(function, Symbol) and function.name in _NUMBERS and len(call.values) == 1:
        note_operation(run, "item", [*call.values], result)
        own_quotients.note_operation(run, "item", [*call.values], result)
    elif isinstance(function, Symbol) and function.name in _MEANS and len(call.values) == 1:
        if local_of(call.values[0]) is not None:
            note(run, result, of_share=True)
    elif run.has_mean_sums and shows(run, function):
        for value in call.values:
            note_shown(run, value)
    elif _is_list_sum(function, call) and isinstance(result, Unknown | TensorValue):
        summed = run.list_sums[result] = run.settle(call.values[0])
        if isinstance(summed, Sequence):
            own_quotients.note_list_sum(run, summed.items, result)


def _is_list_sum(function: Value, call: Call) -> bool:
    return isinstance(function, Symbol) and function.name == "builtins.sum" and bool(call.args)


def note_shown(run: Run, value: Value | None, depth: int = 0) -> None:
    """A number becomes a part of a text, or a function gets it that shows it.

    A list that the program collects may be for a comparison, which no factor changes.
    """
    if value is None or not run.has_mean_sums:
        return
    value = run.settle(value)
    own_quotients.note_shown(run, value)
    event = amount_of(run, value).sum_of_means
    if event is not None:
        event.shown = True
    elif depth < MAX_DEPTH and _is_shown_whole(value):
        for item in value.items.values() if isinstance(value, Dict) else value.items:
            note_shown(run, item, depth + 1)


def _is_shown_whole(value: Value) -> TypeGuard[Dict | Sequence]:
    return isinstance(value, Dict) or (isinstance(value, Sequence) and value.kind == "tuple")


def note_length(run: Run, value: Value | None, result: Value) -> None:
    """The length of the loader or sampler that gives each rank its share, or of a list."""
    if isinstance(value, Sequence):
        run.list_lengths[result] = value
    loader = value if isinstance(value, LoaderValue) else None
    sampler = value if isinstance(value, SamplerValue) else None
    splits = sampler is not None and sampler.splits and not run.decisions.single_rank
    if splits or (loader is not None and of_loader(run, loader, run.executing) is not None):
        note(run, result, counts_share=True)


def note_added(run: Run, left: Value, right: Value, result: Value) -> None:
    """`count += 1`, which counts what the rank gets while it is in a pass over its share, and
    `count += tokens`."""
    own_quotients.note_added(run, left, right, result)
    counts = isinstance(left, Const) or amount_of(run, left).counts_share
    if run.own_passes and counts and isinstance(result, Unknown):
        note(run, result, counts_share=True)
    begins = counts or (isinstance(left, Unknown | TensorValue) and local_of(left) is None)
    if begins and amount_of(run, right).counts_share and isinstance(result, Unknown | TensorValue):
        note(run, result, counts_share=True)


def note_reduction(run: Run, tensor: Value, op: Value | None, call: Call, mean: bool) -> None:
    """A collective of all ranks has reduced a tensor, in place.

    mean: whether it was the mean over data of each rank before.
    """
    if mean and is_sum(op) and not call.open and not run.decisions.single_rank:
        note_sum(run, tensor, run.emit(MeansSummed, call.node))

"""Sums over all ranks that a program takes for a mean.

Each rank computes the mean over its own share of the data. An `all_reduce` that adds the means of
the ranks gives a number that is too large by the number of ranks, until the program divides it by
this number. So does a total of all ranks that is divided by the size of one rank's share.

What is noted here is certain. Any further operation on such a sum, but those that keep its value,
may correct it.
"""

from __future__ import annotations

from typing import TypeGuard

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.library_classes import is_report
from fsdplint.interpreter.losses import is_sum
from fsdplint.interpreter.rank_local import local_of, of_loader
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.shown_values import shows
from fsdplint.interpreter.torch_values import LoaderValue, SamplerValue, TensorValue
from fsdplint.interpreter.values import Const, Dict, Sequence, Symbol, Unknown, Value
from fsdplint.trace import MeansSummed

# Functions and methods of which the result is the same number.
_KEEPS = frozenset(
    "as_tensor bfloat16 clone contiguous cpu cuda detach double exp float item numpy round "
    "squeeze tensor to".split()
)
_NUMBERS = frozenset({"builtins.float", "builtins.round", "math.exp"})
_MEANS = frozenset({"numpy.mean", "statistics.fmean", "statistics.mean"})
# The results of these show that a number is finite, whatever its factor is.
_TESTS = ("isfinite", "isinf", "isnan", "allclose", "isclose")
MAX_DEPTH = 2  # of lists and dicts that a call gets


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """The result of an operation on numbers and tensors."""
    given = [run.settle(one) for one in operands]
    if not given or not isinstance(result, Unknown | TensorValue):
        return
    first = given[0]
    if result is first:
        name = name.rstrip("_")
    found = next((one for one in given if one in run.mean_sums), None)
    if found is not None:
        event = run.mean_sums[found]
        if name in _KEEPS and found is first:
            run.mean_sums[result] = event
        elif not (name.startswith(_TESTS) or is_report(name)):
            event.corrected = True
    elif name == "div" and len(given) == 2:
        _divide(run, first, given[1], result)
    elif name in _KEEPS and is_mean_of_share(run, first):
        run.share_means.add(result)
    elif name in _KEEPS and first in run.shares:
        run.shares.add(result)


def _divide(run: Run, total: Value, by: Value, result: Value) -> None:
    summed = run.list_sums.get(total)
    if summed is not None and summed is run.list_lengths.get(by):
        run.share_means.add(result)
    if by not in run.shares:
        return
    if local_of(total) is not None:
        run.share_means.add(result)
    elif isinstance(total, Unknown | TensorValue) and total.summed and not _is_averaged(total):
        run.mean_sums[result] = run.emit(MeansSummed, run.executing, total=True)


def _is_averaged(total: Unknown | TensorValue) -> bool:
    return isinstance(total, TensorValue) and (total.averaged or bool(total.divided_by))


def note_call(run: Run, function: Value, call: Call, result: Value) -> None:
    """A call of a function that is no operation of torch, which may show a number."""
    if isinstance(function, Symbol) and function.name in _NUMBERS and len(call.values) == 1:
        note_operation(run, "item", [*call.values], result)
    elif isinstance(function, Symbol) and function.name in _MEANS and len(call.values) == 1:
        if local_of(call.values[0]) is not None:
            run.share_means.add(result)
    elif run.mean_sums and shows(run, function):
        for value in call.values:
            note_shown(run, value)
    elif _is_list_sum(function, call) and isinstance(result, Unknown | TensorValue):
        run.list_sums[result] = run.settle(call.values[0])


def _is_list_sum(function: Value, call: Call) -> bool:
    return isinstance(function, Symbol) and function.name == "builtins.sum" and bool(call.args)


def note_shown(run: Run, value: Value | None, depth: int = 0) -> None:
    """A number becomes a part of a text, or a function gets it that shows it.

    A list that the program collects may be for a comparison, which no factor changes.
    """
    if not run.mean_sums or value is None:
        return
    value = run.settle(value)
    event = run.mean_sums.get(value)
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
        run.shares.add(result)


def note_added(run: Run, left: Value, right: Value, result: Value) -> None:
    """`count += 1`, which counts what the rank gets while it is in a pass over its share."""
    counts = isinstance(left, Const) or left in run.shares
    if run.own_passes and counts and isinstance(result, Unknown):
        run.shares.add(result)


def is_mean_of_share(run: Run, value: Value) -> bool:
    """Whether a value is the mean over data of this rank alone."""
    return local_of(value) is not None and (value in run.share_means or value in run.means)


def note_reduction(run: Run, tensor: Value, op: Value | None, call: Call, mean: bool) -> None:
    """A collective of all ranks has reduced a tensor, in place.

    mean: whether it was the mean over data of each rank before.
    """
    run.shares.discard(tensor)
    run.share_means.discard(tensor)
    if mean and is_sum(op) and not call.open and not run.decisions.single_rank:
        run.mean_sums[tensor] = run.emit(MeansSummed, call.node)

"""Sums, means and counts of the data: what an operation makes of them.

Each rank computes means and counts over its own share of the data, and reductions add them. What
is noted of a number is certain. An operation that is not known here gives a number without notes.
"""

from __future__ import annotations

from dataclasses import replace

from fsdplint.interpreter.autograd_functions import in_autograd_function
from fsdplint.interpreter.library_classes import is_report
from fsdplint.interpreter.rank_factors import power_of_ranks
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import Amount, TensorValue
from fsdplint.interpreter.values import Const, Sequence, Unknown, Value
from fsdplint.trace import MeansSummed

NOTHING = Amount()
MAX_DEPTH = 2  # of elements in elements
# Operations after which a fact still holds of the result, if it holds of the first operand.
_KEEPS_LOSS = frozenset("bfloat16 clone contiguous cpu cuda double float half squeeze to".split())
_KEEPS_SHARE = _KEEPS_LOSS | frozenset("as_tensor detach exp item numpy round tensor".split())
_KEEPS_TOTAL = frozenset(
    "clamp clamp_min clone cpu cuda detach double float int item long to".split()
)
# Operations that multiply or divide, and whether they divide.
_SCALES = {"mul": False, "multiply": False, "div": True, "divide": True, "true_divide": True}
# Operations whose result counts elements of all ranks, if each of their operands does.
_KEEPS_COUNT = frozenset(
    "add as_tensor clone cpu cuda div double float int item long mul other sum tensor to".split()
)
_COMPARISONS = frozenset("eq equal ge gt le lt ne not_equal".split())
_COUNTS = frozenset({"count_nonzero", "sum"})  # of marked elements
_MARKS = frozenset("bool isfinite isinf isnan logical_and logical_not logical_or".split())
# The results of these show that a number is finite, whatever its factor is.
_TESTS = ("isfinite", "isinf", "isnan", "allclose", "isclose")


def amount_of(run: Run, value: Value) -> Amount:
    """What is known of a number."""
    return run.amounts.get(value, NOTHING)


def note(run: Run, value: Value, **facts: object) -> None:
    """Note facts of a number: the fields of its amount."""
    run.amounts[value] = replace(amount_of(run, value), **facts)  # type: ignore[arg-type]


def note_sum(run: Run, value: Value, event: MeansSummed) -> None:
    """Note that a number is the sum of the means of all ranks."""
    run.has_mean_sums = True
    note(run, value, sum_of_means=event)


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """Note what the result of an operation on numbers and tensors is."""
    given = [run.settle(one) for one in operands]
    if not given or not isinstance(result, Unknown | TensorValue):
        return
    scale = name.rstrip("_")
    if scale in _SCALES and len(given) == 2 and isinstance(result, TensorValue):
        _note_ranks(run, _SCALES[scale], given, result)
    if any(one is result for one in given):
        if name.endswith("_") and name != "requires_grad_" and result in run.amounts:
            note(run, result, of_batch=False)
    else:
        _note_kept(run, name, given, result)
        if _counts_all(run, name, given):
            note(run, result, counts_all=True)
    if run.has_own_data:
        _note_share(run, name.rstrip("_") if result is given[0] else name, given, result)


def _note_kept(run: Run, name: str, given: list[Value], result: Unknown | TensorValue) -> None:
    """Note what a new number has of the first operand, and of the others in a sum or product."""
    first = amount_of(run, given[0])
    if first.of_batch and in_autograd_function(run):
        return  # its backward may scale the gradient
    if first.of_batch and name == "add" and all(amount_of(run, one).of_batch for one in given):
        note(run, result, of_batch=True)
    elif first.of_batch and name in _KEEPS_LOSS:
        note(run, result, of_batch=True)
    if first.repeated is not None and name in _KEEPS_TOTAL:
        note(run, result, repeated=first.repeated)
    if first.sum_of_counts is not None:
        if name in _KEEPS_TOTAL:
            note(run, result, sum_of_counts=first.sum_of_counts)
        elif name == "div" and power_of_ranks(run, given[-1]) == 1:
            first.sum_of_counts.of_global_count = False
    if name in ("div", "mul") and len(given) == 2 and isinstance(result, TensorValue):
        _note_scaled(run, name, given, result)


def _note_scaled(run: Run, name: str, given: list[Value], result: TensorValue) -> None:
    """A loss that is divided by a total of all ranks, or multiplied by the size of a dimension."""
    loss, by = (amount_of(run, one) for one in given)
    if name == "mul" and loss.size_of is not None:
        given, loss, by = given[::-1], by, loss
    divided_by, times = loss.divided_by, loss.times_size_of
    if name == "div" and by.repeated is not None:
        divided_by = by.repeated
    elif name == "mul" and by.size_of is not None:
        times = by.size_of
    elif not isinstance(given[1], Const):
        return  # it may undo either
    if divided_by is not None or times is not None:
        note(run, result, divided_by=divided_by, times_size_of=times)


def _note_ranks(run: Run, divides: bool, given: list[Value], result: TensorValue) -> None:
    """A loss that is multiplied by the number of ranks, or divided by a number of each rank's."""
    loss, by = given
    if not divides and not isinstance(loss, TensorValue):
        loss, by = by, loss
    amount, power = amount_of(run, loss), power_of_ranks(run, by)
    times_ranks, by_own_number = amount.times_ranks, amount.by_own_number
    if power in (1, -1):
        times_ranks = (power == 1) is not divides and not times_ranks
    elif local_of(by) is not None:
        by_own_number = divides
    elif not isinstance(by, Const):  # it may undo either
        times_ranks = by_own_number = False
    if amount.times_ranks or amount.by_own_number or times_ranks or by_own_number:
        note(run, result, times_ranks=times_ranks, by_own_number=by_own_number)


def _counts_all(run: Run, name: str, given: list[Value]) -> bool:
    known = [one for one in given if not isinstance(one, Const)]
    return name in _KEEPS_COUNT and bool(known) and all(counts_all(run, one) for one in known)


def counts_all(run: Run, value: Value) -> bool:
    """Whether a number, or each element of a tensor, certainly counts elements of all ranks."""
    value = run.settle(value)
    if isinstance(value, Sequence):
        return bool(value.items) and all(counts_all(run, one) for one in value.items)
    return amount_of(run, value).counts_all


def _note_share(run: Run, name: str, given: list[Value], result: Unknown | TensorValue) -> None:
    """Note what a number has of means and counts of the rank's share."""
    first = amount_of(run, given[0])
    found = next((one for one in given if amount_of(run, one).sum_of_means is not None), None)
    kept = name in _KEEPS_SHARE
    if found is not None:
        event = amount_of(run, found).sum_of_means
        if kept and found is given[0]:
            note(run, result, sum_of_means=event)
        elif event is not None and not (name.startswith(_TESTS) or is_report(name)):
            event.corrected = True
    elif name == "div" and len(given) == 2:
        _note_quotient(run, given[0], given[1], result)
    elif kept and is_mean_of_share(run, given[0]):
        note(run, result, of_share=True)
    elif kept and first.counts_share:
        note(run, result, counts_share=True)
    elif name in _COMPARISONS or (name in _MARKS and not isinstance(result, Const)):
        note_comparison(run, given, result)
    elif first.marks_share and name in _COUNTS:
        note(run, result, counts_share=True)
    elif first.marks_share and kept:
        note(run, result, marks_share=True)
    elif name == "numel" and local_of(given[0]) is not None:
        note(run, result, counts_share=True)


def forget_share(run: Run, value: Value, depth: int = 0) -> None:
    """A collective gives all ranks the same tensor: it and its elements no longer count the share
    of one rank."""
    value = run.settle(value)
    if value in run.amounts:
        counts = amount_of(run, value).counts_share
        note(run, value, counts_share=False, of_share=False, counts_shares=counts)
    parts: list[Value] = []
    if isinstance(value, Unknown):
        parts = list(value.parts.values())
    elif isinstance(value, Sequence):
        parts = value.items
    if depth < MAX_DEPTH:
        for part in parts:
            forget_share(run, part, depth + 1)


def note_comparison(run: Run, operands: list[Value], result: Value) -> None:
    """Note the elements that a comparison of the rank's own data marks."""
    if run.has_own_data and isinstance(result, Unknown | TensorValue):
        if any(_is_data(run.settle(one)) for one in operands) and local_of(result) is not None:
            note(run, result, marks_share=True)


def _is_data(value: Value) -> bool:
    """Whether a value is data of the rank, and no number that was computed of it."""
    local = local_of(value)
    return local is not None and not local.number


def _note_quotient(run: Run, total: Value, by: Value, result: Unknown | TensorValue) -> None:
    """A sum that is divided by the length of its list, or by the size of the rank's share."""
    summed = run.list_sums.get(total)
    if summed is not None and summed is run.list_lengths.get(by):
        note(run, result, of_share=True)
    if not amount_of(run, by).counts_share:
        return
    if local_of(total) is not None:
        note(run, result, of_share=True)
    elif amount_of(run, total).counts_shares:
        return  # the share of the rank in all data
    elif isinstance(total, Unknown | TensorValue) and total.summed and not _is_averaged(total):
        note_sum(run, result, run.emit(MeansSummed, run.executing, total=True))


def _is_averaged(total: Unknown | TensorValue) -> bool:
    return isinstance(total, TensorValue) and (total.averaged or bool(total.divided_by))


def is_mean_of_share(run: Run, value: Value) -> bool:
    """Whether a value is the mean over data of this rank alone."""
    amount = amount_of(run, value)
    return local_of(value) is not None and (amount.of_share or amount.of_batch)

"""Numbers of one rank alone that a program divides by the number of ranks.

The quotient is the mean of the ranks if a reduction has added their numbers before, or adds the
quotients later. Otherwise it is too small by the number of ranks. What is noted here is certain: a
number is one of this rank if all that it was computed of are the batches of the rank, outputs of
a model for them, and constants.
"""

from __future__ import annotations

from fsdplint.interpreter.amounts import amount_of, note
from fsdplint.interpreter.losses import is_output
from fsdplint.interpreter.rank_factors import power_of_ranks
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import TensorValue
from fsdplint.interpreter.values import Const, Unknown, Value
from fsdplint.trace import OwnNumberDivided

_SCALES = ("div", "mul")  # by what is no number of ranks, they keep a quotient too small
# Operations that keep a quotient as it is.
_KEEPS = frozenset(
    "clone cpu cuda detach double exp float item numpy round squeeze tensor to".split()
)


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """Note whether the result of an operation is a number of this rank, or such a quotient."""
    given = [run.settle(one) for one in operands]
    if not run.has_own_data or not given or not isinstance(result, Unknown | TensorValue):
        return
    if run.decisions.single_rank:
        return
    if any(one is result for one in given):
        if name == "div_":
            _note_quotient(run, given, result)
        return
    quotient = amount_of(run, given[0]).over_ranks
    scaled = name in _SCALES and all(_is_neutral(run, one) for one in given[1:])
    if quotient is not None and (name in _KEEPS or scaled):
        note(run, result, over_ranks=quotient)
    elif name == "div" and len(given) == 2 and _counts_ranks(run, given[1]):
        _note_quotient(run, given, result)
    elif name == "mul" and _counts_all(run, given):
        note(run, result, counts_shares=True)
    elif _is_of_own(run, given):
        note(run, result, own=True)


def _note_quotient(run: Run, given: list[Value], result: Value) -> None:
    if len(given) == 2 and is_own(run, given[0]) and _counts_ranks(run, given[1]):
        note(run, result, over_ranks=run.emit(OwnNumberDivided, run.executing))
        run.has_mean_sums = True


def _counts_all(run: Run, factors: list[Value]) -> bool:
    """Whether a product is that of a number of samples and of the number of ranks."""
    counts = [amount_of(run, one).counts_share for one in factors]
    return any(counts) and any(power_of_ranks(run, one) == 1 for one in factors)


def _counts_ranks(run: Run, by: Value) -> bool:
    """Whether a divisor is the number of ranks, or that of the samples of all ranks."""
    return power_of_ranks(run, by) == 1 or amount_of(run, by).counts_shares


def note_list_sum(run: Run, items: list[Value], result: Value) -> None:
    """Python's `sum` of a list."""
    if items and all(is_own(run, one) for one in items):
        note(run, result, own=True)


def note_added(run: Run, left: Value, right: Value, result: Value) -> None:
    """`total += loss.item()`"""
    if run.has_own_data and isinstance(result, Unknown | TensorValue):
        if _is_of_own(run, [run.settle(left), run.settle(right)]):
            note(run, result, own=True)


def note_reduction(run: Run, tensor: Value) -> None:
    """A collective gets a number, and a sum of the quotients is the mean."""
    amount = amount_of(run, tensor)
    if amount.over_ranks is not None:
        amount.over_ranks.corrected = True
    if amount.own:
        note(run, tensor, own=False)


def note_backward(run: Run, loss: Value) -> None:
    """The gradients of such a loss are added over the ranks."""
    quotient = amount_of(run, run.settle(loss)).over_ranks
    if quotient is not None:
        quotient.corrected = True


def note_shown(run: Run, value: Value) -> None:
    """A number becomes a part of a text, or a function gets it that shows it."""
    quotient = amount_of(run, value).over_ranks
    if quotient is not None and local_of(value) is not None:
        quotient.shown = True


def is_own(run: Run, value: Value) -> bool:
    """Whether a number certainly is one of this rank."""
    value = run.settle(value)
    local = local_of(value)
    if local is None or not isinstance(value, Unknown | TensorValue) or value.summed:
        return False
    return amount_of(run, value).own or local.batch is not None or is_output(value)


def _is_of_own(run: Run, given: list[Value]) -> bool:
    others = [one for one in given if not is_own(run, one)]
    return len(others) < len(given) and all(_is_neutral(run, one) for one in others)


def _is_neutral(run: Run, value: Value) -> bool:
    """Whether a number is the same on all ranks, and counts nothing of all of them."""
    if isinstance(value, Const) or isinstance(value, Unknown) and value.new_tensor:
        return True
    return amount_of(run, value).counts_share or power_of_ranks(run, value) == 0

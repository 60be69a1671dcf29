"""Norms that each rank computes of its part of the gradients, and their sums over the ranks.

The norm of whole gradients is the root of the squares of all ranks. A program that takes the root
first, and adds up the roots with `all_reduce`, gets a number that is too large.

What is noted here is certain. An operation that is not known makes a number without notes.
"""

from __future__ import annotations

from fsdplint.interpreter.losses import is_sum
from fsdplint.interpreter.rank_factors import power_of_ranks
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import TensorValue
from fsdplint.interpreter.values import Const, Symbol, Unknown, Value, constant

_NORMS = frozenset("get_total_norm norm vector_norm".split())
_POWERS = frozenset({"float_power", "pow"})
# Operations that keep a number as it is.
_KEEPS = frozenset(
    "as_tensor clone contiguous cpu cuda detach double float item reshape squeeze tensor to "
    "unsqueeze view".split()
)
# Operations after which a number still has the sum in it, so that a factor made of it is too small.
_KEEPS_SUM = _KEEPS | frozenset(
    "add clamp clamp_max clamp_min clip div divide max maximum min minimum mul multiply reciprocal "
    "true_divide".split()
)


_NUMBERS = {
    "builtins.float": "float",
    "builtins.max": "max",
    "builtins.min": "min",
    "builtins.pow": "pow",
    "math.pow": "pow",
    "math.sqrt": "sqrt",
}


def note_call(run: Run, function: Value, operands: list[Value], result: Value) -> None:
    """A call of a function that is no operation of torch."""
    if isinstance(function, Symbol) and function.name in _NUMBERS:
        note_operation(run, _NUMBERS[function.name], operands, result)


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """Note whether the result of an operation is a norm of the part, or has a sum of norms."""
    given = [run.settle(one) for one in operands]
    if not given or not isinstance(result, Unknown | TensorValue):
        return
    in_place = any(one is result for one in given)
    if in_place and not name.endswith("_"):
        return
    name = name.removesuffix("_")
    root = _is_root(run, name, given)
    summed = _has_sum(run, name, given)
    run.own_roots.discard(result)
    run.sums_of_roots.discard(result)
    if root:
        run.own_roots.add(result)
    if summed:
        run.sums_of_roots.add(result)


def note_reduction(run: Run, tensor: Value, op: Value | None) -> None:
    """A collective of all ranks has reduced a tensor, in place."""
    if tensor in run.own_roots:
        run.own_roots.discard(tensor)
        if is_sum(op) and not run.decisions.single_rank:
            run.sums_of_roots.add(tensor)


def _is_root(run: Run, name: str, given: list[Value]) -> bool:
    first = given[0]
    if name in _KEEPS:
        return first in run.own_roots
    local = local_of(first)
    if local is None or local.source not in run.own_gradients:
        return False
    exponent = given[1] if len(given) > 1 else None
    if name in _NORMS:
        return exponent is None or constant(exponent) in (2, "fro")
    if name in _POWERS:
        number = constant(exponent) if exponent is not None else None
        return isinstance(number, int | float) and 0 < number < 1
    return name == "sqrt"


def _has_sum(run: Run, name: str, given: list[Value]) -> bool:
    found = [one for one in given if one in run.sums_of_roots]
    if len(found) != 1 or name not in _KEEPS_SUM:
        return False
    others = [one for one in given if one not in run.sums_of_roots]
    return all(isinstance(one, Const) or power_of_ranks(run, one) == 0 for one in others)

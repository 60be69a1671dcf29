"""Losses: how often the program divides them by the number of ranks.

FSDP averages the gradients of the ranks, so that a loss that the program divides too is too
small.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.amounts import amount_of
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.rank_local_calls import of_method
from fsdplint.interpreter.ranks import WORLD_SIZE
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.tensor_devices import copies_to_cpu
from fsdplint.interpreter.torch_values import ShardTensor, TensorValue
from fsdplint.interpreter.values import Const, Symbol, Unknown, Value
from fsdplint.trace import BackwardRun, OptimizerStepped

# Methods that keep the number in a tensor.
_KEEPS_NUMBER = {"item", "float", "double", "long", "int", "clamp", "clamp_min", "clone", "detach"}

_KEEPS_SIZE = {"to", "cuda", "xpu", "float", "double", "long", "clone", "detach", "contiguous"}
_SCALES = {"div", "div_", "true_divide", "mul", "mul_", "multiply", "multiply_"}


def derive(value: TensorValue) -> TensorValue:
    """A new tensor that is computed from one."""
    return TensorValue(
        value.source,
        value.modules,
        rank_local=value.rank_local,
        scaled=value.scaled,
        blended=value.blended,
    )


def is_output(value: Value) -> bool:
    """Whether a tensor is the output of a model, or was computed from outputs alone."""
    return type(value) is TensorValue and value.source == "output" and not value.blended


def _adds_nothing(value: Value) -> bool:
    """Whether a sum with a value is still computed from outputs alone."""
    if isinstance(value, Unknown) and value.new_tensor:
        return True
    return isinstance(value, Const) or is_output(value)


def is_sum(op: Value | None) -> bool:
    """Whether the operation of a reduction, which is the default without one, adds."""
    return op is None or (isinstance(op, Symbol) and op.name.endswith(".SUM"))


def sum_in_place(value: Value, op: Value | None) -> None:
    """`dist.all_reduce(value)`"""
    if isinstance(value, TensorValue | Unknown) and not isinstance(value, ShardTensor):
        value.summed = value.summed or is_sum(op)


def keep_sum_and_size(function: Value, result: Value) -> None:
    """Note that `total.item()` is the number that an `all_reduce` summed, and that
    `total.to(device)` has as many elements as `total`."""
    owner = function.owner if isinstance(function, Unknown) else None
    if owner is None or not isinstance(result, Unknown):
        return
    if owner.few_elements:
        result.few_elements = any(owner.parts.get(name) is function for name in _KEEPS_SIZE)
    if not owner.summed:
        return
    result.summed = any(owner.parts.get(name) is function for name in _KEEPS_NUMBER)


def keep_sum_of_element(value: Value, element: Value) -> None:
    """`sums[0]` is a number that an `all_reduce` summed, too."""
    if isinstance(value, Unknown | TensorValue) and not isinstance(value, ShardTensor):
        if value.summed and isinstance(element, Unknown | TensorValue):
            element.summed = True


def scale(value: TensorValue, op: cst.BaseBinaryOp | None, by: Value) -> TensorValue:
    """The result of `value / by` or another operation on a tensor."""
    result = derive(value)
    if isinstance(op, cst.Multiply):
        result.scaled = value.scaled or _may_be_ranks(by)
    elif isinstance(op, cst.Divide):
        result.summed = value.summed
        by_ranks = _is_ranks(by)
        result.averaged = value.averaged or (value.summed and by_ranks)
        result.divided_by = value.divided_by
        if not value.scaled and not value.summed:
            total = isinstance(by, Unknown | TensorValue) and by.summed
            result.divided_by = "ranks" if by_ranks else "total" if total else value.divided_by
    else:
        result.blended = value.blended or not _adds_nothing(by)
        if isinstance(op, cst.Add | cst.Subtract):  # of several losses, one may be divided
            other = by.divided_by if isinstance(by, TensorValue) else ""
            result.divided_by = value.divided_by or other
    return result


def _is_ranks(value: Value) -> bool:
    return isinstance(value, Unknown) and value.origin == WORLD_SIZE


def note_product(run: Run, left: Value, right: Value) -> None:
    """A number of each rank's own times the number of ranks may stand for that of all ranks."""
    for one, other in ((left, right), (right, left)):
        if _is_ranks(one) and not isinstance(other, TensorValue) and local_of(other) is not None:
            run.estimates_totals = True


def sums_means(run: Run, loss: Value) -> bool:
    """Whether each rank's loss is divided by a number of its own, and times the number of ranks."""
    amount = amount_of(run, loss)
    if not isinstance(loss, TensorValue) or not (amount.times_ranks and amount.by_own_number):
        return False
    return not (loss.summed or loss.averaged or loss.divided_by or run.estimates_totals)


def _may_be_ranks(by: Value) -> bool:
    """Whether a factor may be the number of ranks, which is the same on all of them."""
    return not isinstance(by, Const) and local_of(by) is None


def through_method(value: TensorValue, name: str, call: Call) -> TensorValue:
    """The result of an unmodelled tensor method; an in-place method returns the tensor."""
    if name in {"div", "div_", "true_divide"} and call.args:
        result = scale(value, cst.Divide(), call.args[0])
        if name != "div_":
            return result
        value.summed, value.averaged = result.summed, result.averaged
        value.divided_by = result.divided_by
    if name in {"mul", "mul_", "multiply", "multiply_"}:
        value = value if name.endswith("_") else derive(value)
        value.scaled = value.scaled or any(map(_may_be_ranks, call.args[:1]))
        value.divided_by = "" if value.scaled else value.divided_by
    if name in {"to", "cuda"} and (value.on_cpu or copies_to_cpu(call)):
        return derive(value)
    if name in {"to", "cuda", "requires_grad_", "contiguous"}:
        return value
    result = value if name.endswith("_") else derive(value)
    result.blended = value.blended or not (name in _SCALES or all(map(_adds_nothing, call.values)))
    if result is not value:
        result.rank_local = of_method(value, name, call.values)
        if name in _KEEPS_NUMBER:
            result.summed, result.averaged = value.summed, value.averaged
    return result


def forget_division(run: Run) -> None:
    """The program reads gradients after the backward pass, and may scale them itself."""
    for event in reversed(run.trace.events):
        if isinstance(event, OptimizerStepped):
            return
        if isinstance(event, BackwardRun):
            event.divided_by, event.of_mean, event.sums_means = "", False, False

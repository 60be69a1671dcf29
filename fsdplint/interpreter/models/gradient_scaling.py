"""Gradients that each rank multiplies by a number of its own."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import losses
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.mixed_operations import note_foreach_written, note_mixed
from fsdplint.interpreter.models.registry import FUNCTIONS, function, method
from fsdplint.interpreter.models.tensors import elementwise_method, is_own_part
from fsdplint.interpreter.rank_factors import power_of_ranks
from fsdplint.interpreter.rank_local import own_number_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ShardTensor, TensorValue
from fsdplint.interpreter.values import Sequence, Unknown, Value
from fsdplint.trace import GradientScaled

_METHODS = ("mul_", "multiply_", "div_", "divide_", "true_divide_")


@method("ShardTensor", *_METHODS)
def scale_gradient(run: Run, receiver: ShardTensor, name: str, call: Call) -> Value:
    note_scaling(run, receiver, call.arg(0, "other"), call.node, "div" in name)
    return elementwise_method(run, receiver, "abs_", call)


@method("LocalGradient", *_METHODS)
def scale_local_gradient(run: Run, receiver: TensorValue, name: str, call: Call) -> Value:
    note_scaling(run, receiver, call.arg(0, "other"), call.node, "div" in name)
    return losses.through_method(receiver, name, call)


@function("torch._foreach_mul_", "torch._foreach_div_")
def scale_gradients(run: Run, name: str, call: Call) -> Value:
    note_mixed(run, name, call.values, call.node)
    note_foreach_written(run, call)
    held = run.settle(call.arg(0, "self") or Unknown())
    if isinstance(held, Sequence) and held.items:
        by = call.arg(1, "scalar")
        note_scaling(run, run.settle(held.items[0]), by, call.node, "div" in name)
    return FUNCTIONS["torch."](run, name, call)


def note_scaling(
    run: Run, gradient: Value, by: Value | None, node: cst.CSTNode, divides: bool
) -> None:
    """Record a multiplication or division in place of a sharded gradient."""
    if by is None or not is_own_part(run, gradient):
        return
    by = run.settle(by)
    total = isinstance(by, Unknown) and (by.summed if divides else by.reciprocal)
    modules = gradient.modules if isinstance(gradient, TensorValue) else ()
    run.emit(
        GradientScaled,
        node,
        differs=own_number_of(by) is not None,
        by_total=total,
        by_ranks=power_of_ranks(run, by) == (1 if divides else -1),
        by_norms=by in run.sums_of_roots,
        modules=tuple(module.id for module in modules),
    )

"""Totals over all ranks of numbers that several ranks have in common.

The ranks of one tensor parallel group get the same batch. A sum over all ranks counts each
of its tokens once for each of them. What is noted here is certain: the position in one dimension of
a mesh chooses the data, and the sum is over all ranks.
"""

from __future__ import annotations

from fsdplint.interpreter.losses import is_sum
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import TensorValue
from fsdplint.interpreter.values import Const, Unknown, Value
from fsdplint.trace import BackwardRun, Split

# Functions and methods of which the result is the same number.
_KEEPS = frozenset("clamp clamp_min clone cpu cuda detach double float int item long to".split())


def note_reduction(run: Run, tensor: Value, op: Value | None, split: Split | None) -> None:
    """A collective of all ranks has reduced a tensor. split: what chose its data before."""
    if split is not None and is_sum(op) and not run.decisions.single_rank:
        run.repeated_totals[tensor] = split


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """The result of an operation on numbers and losses."""
    given = [run.settle(one) for one in operands]
    if not given or result in given:
        return
    first = given[0]
    if name in _KEEPS and first in run.repeated_totals:
        run.repeated_totals[result] = run.repeated_totals[first]
    elif name in ("div", "mul") and len(given) == 2 and isinstance(result, TensorValue):
        _scale(run, name, given, result)


def _scale(run: Run, name: str, operands: list[Value], result: TensorValue) -> None:
    """A loss that is divided by such a total, or multiplied by the size of a dimension."""
    loss, by = operands
    if name == "mul" and loss in run.part_sizes:
        loss, by = by, loss
    split, size = run.scaled_losses.get(loss, (None, None))
    if name == "div" and by in run.repeated_totals:
        split = run.repeated_totals[by]
    elif name == "mul" and by in run.part_sizes:
        size = run.part_sizes[by]
    elif not isinstance(by, Const):
        return  # it may undo either
    if split is not None or size is not None:
        run.scaled_losses[result] = split, size


def note_size(run: Run, mesh: str, dimension: str, result: Value) -> None:
    """`mesh["dp"].size()`"""
    if mesh and isinstance(result, Unknown):
        run.part_sizes[result] = mesh, dimension


def note_backward(run: Run, loss: Value, event: BackwardRun) -> None:
    """A backward pass of a loss."""
    split, size = run.scaled_losses.get(loss, (None, None))
    if split is not None and size == (split.mesh, split.dimension):
        event.repeated = split

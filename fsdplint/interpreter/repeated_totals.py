"""Totals over all ranks of numbers that several ranks have in common.

The ranks of one tensor parallel group get the same batch. A sum over all ranks counts each
of its tokens once for each of them. What is noted here is certain: the position in one dimension of
a mesh chooses the data, and the sum is over all ranks.
"""

from __future__ import annotations

from fsdplint.interpreter.amounts import amount_of, note
from fsdplint.interpreter.losses import is_sum
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Unknown, Value
from fsdplint.trace import BackwardRun, Split


def note_reduction(run: Run, tensor: Value, op: Value | None, split: Split | None) -> None:
    """A collective of all ranks has reduced a tensor. split: what chose its data before."""
    if split is not None and is_sum(op) and not run.decisions.single_rank:
        note(run, tensor, repeated=split)


def note_size(run: Run, mesh: str, dimension: str, result: Value) -> None:
    """`mesh["dp"].size()`"""
    if mesh and isinstance(result, Unknown):
        note(run, result, size_of=(mesh, dimension))


def note_backward(run: Run, loss: Value, event: BackwardRun) -> None:
    """A backward pass of a loss."""
    amount = amount_of(run, loss)
    split = amount.divided_by
    if split is not None and amount.times_size_of == (split.mesh, split.dimension):
        event.repeated = split

"""Losses that are certainly the mean over one micro-batch, and that nothing has scaled.

A backward pass of such a loss adds the gradient of the micro-batch as it is. With n micro-batches
before a step, the optimizer gets n times the gradient of their mean.
"""

from __future__ import annotations

from fsdplint.interpreter.amounts import amount_of, note
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import TensorValue
from fsdplint.interpreter.values import LibraryObject, Symbol, Unknown, Value, constant

# Functions of torch.nn.functional that return a mean unless `reduction` says otherwise.
_LOSSES = frozenset(
    "binary_cross_entropy binary_cross_entropy_with_logits cross_entropy huber_loss l1_loss "
    "mse_loss nll_loss smooth_l1_loss".split()
)
_REDUCTIONS = frozenset({"reduction", "reduce", "size_average"})
_MAX_POSITIONAL = 3  # arguments, before those that choose the reduction


def note_loss(run: Run, name: str, function: Value, call: Call, result: Value) -> None:
    """The result of a loss of torch."""
    if isinstance(function, LibraryObject):
        given = {*function.args} & _REDUCTIONS
        mean = given <= {"reduction"} and _is_mean(function.args.get("reduction"))
        if function.is_loss and mean and not function.open and "0" not in function.args:
            note(run, result, of_batch=True)
    elif isinstance(function, Symbol) and name in _LOSSES:
        given = {*call.kwargs} & _REDUCTIONS
        mean = given <= {"reduction"} and _is_mean(call.kwargs.get("reduction"))
        if mean and not call.open and len(call.args) <= _MAX_POSITIONAL:
            note(run, result, of_batch=True)
    elif name == "mean" and not call.args and not call.kwargs and not call.open:
        note(run, result, of_batch=True)


def _is_mean(reduction: Value | None) -> bool:
    return reduction is None or constant(reduction) == "mean"


def note_output(run: Run, returned: list[Value], output: TensorValue) -> None:
    """The forward of a module has returned a value, which its caller gets as the output."""
    values = [run.settle(one) for one in returned]
    if values and all(amount_of(run, one).of_batch for one in values):
        note(run, output, of_batch=True)


def is_mean(run: Run, loss: Value) -> bool:
    """Whether a loss is certainly the mean over one micro-batch."""
    return isinstance(loss, TensorValue | Unknown) and amount_of(run, loss).of_batch

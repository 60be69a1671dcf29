"""The backward pass."""

from __future__ import annotations

from fsdplint.interpreter import (
    gathered_rows,
    hooks,
    losses,
    mean_losses,
    own_quotients,
    repeated_totals,
    second_order,
)
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.module_tree import communicates
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import TensorValue
from fsdplint.interpreter.values import (
    Const,
    Context,
    ModuleValue,
    Unknown,
    Value,
)
from fsdplint.trace import BackwardRun
from fsdplint.trace.predicates import Predicate


def _modules_in_no_sync(run: Run) -> tuple[str, ...]:
    """The modules whose `no_sync()` is certainly open."""
    found = _contexts_of_no_sync(run)
    return tuple(c.module.id for c in found if c.module is not None and c.certain)


def _modules_perhaps_in_no_sync(run: Run) -> tuple[tuple[str, Predicate | None], ...]:
    """The modules whose `no_sync()` may be open, and the test that decides it."""
    found = _contexts_of_no_sync(run)
    return tuple((c.module.id, c.opens) for c in found if c.module is not None and not c.certain)


def _contexts_of_no_sync(run: Run) -> list[Context]:
    return [c for c in run.contexts if isinstance(c, Context) and c.kind == "no_sync"]


@function("torch.autograd.backward")
def backward_of(run: Run, name: str, call: Call) -> Value:
    """`torch.autograd.backward(loss)`, or of a list of losses."""
    loss = run.settle(call.arg(0, "tensors") or Unknown())
    return backward(run, loss, name, Call(call.node))


@method("TensorValue", "backward")
@method("Unknown", "backward")
def backward(run: Run, receiver: Value, name: str, call: Call) -> Value:
    sharded = any(
        communicates(run, value) for value in run.objects.values() if isinstance(value, ModuleValue)
    )
    loss = receiver if isinstance(receiver, TensorValue) and not call.values else TensorValue()
    event = run.emit(
        BackwardRun,
        call.node,
        collective=sharded,
        averaged=loss.averaged,
        divided_by=loss.divided_by,
        multiplied=loss.scaled,
        of_mean=not call.values and mean_losses.is_mean(run, receiver),
        sums_means=not call.values and losses.sums_means(run, receiver),
        unsynchronized=_modules_in_no_sync(run),
        perhaps_unsynchronized=_modules_perhaps_in_no_sync(run),
    )
    if not call.values and isinstance(receiver, Unknown | TensorValue):
        receiver.few_elements = True  # torch accepts no other loss without a gradient for it
    gathered_rows.note_backward(run, receiver, event)
    second_order.note_backward(run, receiver, event)
    repeated_totals.note_backward(run, receiver, event)
    own_quotients.note_backward(run, receiver)
    hooks.fire(run, hooks.Moment.BACKWARD, call.node)
    return Const(None)

"""Gradients through a sharded model that the program differentiates again.

`torch.autograd.grad(outputs, inputs, create_graph=True)` is a backward pass for FSDP: its hooks
free the gathered parameters, which the graph of the result still needs. What is noted here
is certain: the outputs carry gradients (`Run.with_gradient`), and an operation that ends the
gradient notes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.interpreter import grad_mode
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.gathered_rows import ENDS_GRADIENT
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf, TensorValue
from fsdplint.interpreter.values import Sequence, Symbol, Unknown, Value, constant
from fsdplint.trace import BackwardRun, DifferentiableGradient, GradMode

_CREATE_GRAPH = 4  # the position of the argument


def note_gradient(run: Run, function: Value, call: Call, result: Value) -> None:
    """A call, which may be one of `torch.autograd.grad`."""
    if not isinstance(function, Symbol) or function.name != "torch.autograd.grad":
        return
    creates = call.arg(_CREATE_GRAPH, "create_graph")
    outputs, inputs = call.arg(0, "outputs"), call.arg(1, "inputs")
    if creates is None or outputs is None or inputs is None or call.open:
        return
    if constant(run.settle(creates)) is not True or not _in_autograd(run):
        return
    # The gradients of parameters raise another error.
    parameters = any(isinstance(one, ParametersOf) for one in _elements(run, inputs))
    if not parameters and any(one in run.with_gradient for one in _elements(run, outputs)):
        run.second_order[result] = run.emit(DifferentiableGradient, call.node)


def _elements(run: Run, value: Value) -> list[Value]:
    value = run.settle(value)
    return [run.settle(one) for one in value.items] if isinstance(value, Sequence) else [value]


def _in_autograd(run: Run) -> bool:
    return grad_mode.current(run.contexts, run.grad_default) is GradMode.ON


def note_operation(run: Run, name: str, operands: Iterable[Value], result: Value) -> None:
    """Note that the result of an operation on such a gradient is computed from it."""
    if name in ENDS_GRADIENT or not _in_autograd(run):
        return
    for operand in operands:
        for one in _elements(run, operand):
            if one in run.second_order and result not in run.second_order:
                run.second_order[result] = run.second_order[one]


def note_part(run: Run, value: Value, part: Value) -> None:
    """`gradients[0]`"""
    if value in run.second_order and isinstance(part, Unknown | TensorValue):
        run.second_order.setdefault(part, run.second_order[value])


def note_output(run: Run, output: Value, returned: Iterable[Value]) -> None:
    """A forward has returned such a gradient, which its caller gets as the output."""
    for value in map(run.settle, returned):
        if value in run.second_order:
            run.second_order[output] = run.second_order[value]


def note_backward(run: Run, loss: Value, event: BackwardRun) -> None:
    """A backward pass of a loss that contains such a gradient."""
    taken = run.second_order.get(loss)
    if taken is not None and taken.backward is None:
        taken.backward = event.index

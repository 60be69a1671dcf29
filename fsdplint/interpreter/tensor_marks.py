"""What the interpreter notes of tensors when an operation makes a new one of them.

Most marks of a tensor are kept in tables of the run, by the value. Each of them is certain: an
operation that is not known here makes a tensor without marks.
"""

from __future__ import annotations

from dataclasses import replace

from fsdplint.interpreter import (
    amounts,
    gathered_rows,
    gradient_writes,
    local_columns,
    mean_losses,
    own_quotients,
    own_roots,
    pending_results,
    plain_tensors,
    rank_means,
    same_noise,
    second_order,
    tensor_devices,
    tensor_dtypes,
)
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.method_names import attribute_name
from fsdplint.interpreter.rank_local_calls import COMMUNICATES
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ScalerValue, TensorValue
from fsdplint.interpreter.values import LibraryObject, Method, Symbol, Unknown, Value


def note_call(run: Run, function: Value, call: Call, result: Value) -> None:
    """Note what the result of a call has of its operands."""
    if not isinstance(result, Unknown | TensorValue):
        return
    name, operands = _operation(run, function, call)
    if name:
        second_order.note_gradient(run, function, call, result)
        mean_losses.note_loss(run, name, function, call, result)
        local_columns.note_loss(run, name, operands, call.node)
        local_columns.note_choice(run, name, operands, call)
        note_operation(run, name, operands, result)
        local_columns.note_view(run, name, operands, call.node, result)
        if isinstance(function, Symbol):
            plain_tensors.note_new(run, function.name, call, result)
            tensor_dtypes.note_new(run, function.name, call, result)
    same_noise.note_drawn(run, function, call, result)
    if run.has_own_data:
        rank_means.note_call(run, function, call, result)
    if run.own_gradients and not name:
        own_roots.note_call(run, function, [*call.values], result)


def note_operands(run: Run, function: Value, call: Call) -> None:
    """Note what a call reads, before it is executed."""
    if run.pending:
        name, operands = _operation(run, run.settle(function), call)
        if name:
            pending_results.note_read(run, name, operands, call.node)


def has_marks(run: Run) -> bool:
    """Whether an operator may have to note anything."""
    marks = (
        run.rows
        or run.joined_gradients
        or run.with_gradient
        or run.amounts
        or run.plain_tensors
        or run.dtypes
        or run.columns
    )
    return bool(marks) or run.has_own_data


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """Note what the result of an operation has of its operands.

    name: that of the function or method of torch, or "matmul", "div", "mul", "add" or "other" for
    an operator.
    """
    if not isinstance(result, Unknown | TensorValue):
        return
    tensor_devices.note_operation(run, name, operands, result)
    if run.dtypes or name in tensor_dtypes.CASTING:
        tensor_dtypes.note_operation(run, name, operands, result)
    if run.plain_tensors:
        plain_tensors.note_operation(run, name, operands, result)
    gradient_writes.note_operation(run, name, operands, result)
    if run.rows or run.with_gradient or run.row_numbers:
        gathered_rows.note_operation(run, name, operands, result)
    if run.second_order:
        second_order.note_operation(run, name, operands, result)
    if run.columns:
        local_columns.note_operation(run, name, operands, result)
        local_columns.note_attention(run, name, operands)
    if run.amounts or run.has_own_data:
        amounts.note_operation(run, name, operands, result)
        own_quotients.note_operation(run, name, operands, result)
    if run.own_gradients:
        own_roots.note_operation(run, name, operands, result)
    if run.same_noise:
        same_noise.note_operation(run, name, operands, result)


def _operation(run: Run, function: Value, call: Call) -> tuple[str, list[Value]]:
    """The name of an operation on tensors, and its operands; "" for other calls."""
    if isinstance(function, Symbol):
        if function.name == "builtins.sum":
            return "other", [*call.values]
        known = function.name.startswith("torch.") and not function.name.startswith(COMMUNICATES)
        return (function.name.rpartition(".")[2] if known else ""), [*call.values]
    if isinstance(function, LibraryObject) and function.is_loss:
        cross_entropy = function.name.endswith(".CrossEntropyLoss")
        return ("cross_entropy" if cross_entropy else "loss"), [*call.values]
    if isinstance(function, Method):
        if isinstance(function.receiver, ScalerValue):
            return function.name, [*call.values]
        tensor = isinstance(function.receiver, Unknown | TensorValue)
        return (function.name if tensor else ""), [function.receiver, *call.values]
    if isinstance(function, Unknown) and function.owner is not None:
        return attribute_name(function), [function.owner, *call.values]
    return "", []


def elements_of(run: Run, output: TensorValue) -> list[Value]:
    """The tensors in a tuple that a forward has returned."""
    made: list[Value] = []
    for item in output.items:
        element = replace(output, items=())
        if output in run.with_gradient:
            run.with_gradient.add(element)
        if item in run.rows:
            run.rows[element] = run.rows[item]
        if amounts.amount_of(run, item).of_batch:
            amounts.note(run, element, of_batch=True)
        if item in run.second_order:
            run.second_order[element] = run.second_order[item]
        made.append(element)
    return made

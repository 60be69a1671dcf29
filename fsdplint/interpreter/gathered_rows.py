"""Rows of all ranks that a gather collects, and the losses that compare with them.

`dist.all_gather` returns plain copies: a loss over them has no gradient for the rows of this rank
in the copies, unless the program puts its own rows back. The gathered rows are in the order of the
ranks, so that the rows of rank r start at r times their number.

What is noted here is certain: a tensor carries gradients if it was computed from the output of a
sharded model under autograd, and an operation that is not known here notes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fsdplint.interpreter import grad_mode
from fsdplint.interpreter.autograd_functions import in_autograd_function
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.rank_local import STRUCTURE
from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import Gather, Rows, TensorValue
from fsdplint.interpreter.values import (
    Sequence,
    Unknown,
    Value,
)
from fsdplint.trace import BackwardRun, Called, Collective, GradMode

MAX_GATHERS = 8  # that are known for one value
_GATHERS = frozenset({"all_gather", "all_gather_into_tensor"})
_DIFFERENTIABLE = ("torch.distributed.nn.functional.", "torch.distributed.nn.")
_JOINS = frozenset("cat concat concatenate stack vstack row_stack".split())
_PRODUCTS = frozenset("matmul mm".split())
_SCALES = frozenset("div divide mul multiply true_divide".split())
# Their results are the same rows in the same order.
_KEEPS_ROWS = frozenset(
    "T clone contiguous cuda double flatten float half mT mul normalize reshape squeeze t to "
    "transpose type_as view".split()
)
ENDS_GRADIENT = STRUCTURE | frozenset(
    "argmax argmin argsort bincount bool detach eq ge gt int item le long lt ne numpy "
    "tolist".split()
)
_KEEPS_LABELS = frozenset("cuda long to type".split())


def note_output(run: Run, output: Value, event: Called, returned: Iterable[Value]) -> None:
    """A forward has returned values, and its caller gets its output."""
    if event.collective and event.grad is GradMode.ON and _is_trained(run, event.module):
        run.with_gradient.add(output)
    for value in map(run.settle, returned):
        if value in run.rows:
            run.rows[output] = run.rows[value]
        if value in run.with_gradient:
            run.with_gradient.add(output)


def _is_trained(run: Run, module: str) -> bool:
    """Whether a part of a module has parameters that are certainly not frozen."""
    parts = (run.trace.modules[part] for part in run.trace.submodules(module))
    return any(part.own_parameters is True and not part.frozen for part in parts)


def _has_autograd(run: Run) -> bool:
    return grad_mode.current(run.contexts, run.grad_default) is GradMode.ON


def note_gather(run: Run, event: Collective, call: Call) -> None:
    """A gather of all ranks fills its first argument."""
    if event.api not in _GATHERS or run.decisions.single_rank or call.open:
        return
    tensor = call.arg(1, "tensor" if event.api == "all_gather" else "input_tensor")
    tensor = run.settle(tensor) if tensor is not None else Unknown()
    first = "tensor_list" if event.api == "all_gather" else "output_tensor"
    holder = run.settle(call.arg(0, first) or Unknown())
    cuts = tensor in run.with_gradient and _has_autograd(run) and not in_autograd_function(run)
    _hold(run, Gather(event, holder, cuts and event.collective))


def note_differentiable_gather(run: Run, name: str, event: Collective, result: Value) -> None:
    """`torch.distributed.nn.functional.all_gather(x)`, whose backward reduces the gradients."""
    if name.startswith(_DIFFERENTIABLE) and name.endswith(".all_gather"):
        _hold(run, Gather(event, result, False))


def _hold(run: Run, gather: Gather) -> None:
    rows = Rows((gather,), ordered=True)
    run.rows[gather.holder] = rows
    if isinstance(gather.holder, Sequence):
        for item in gather.holder.items:
            run.rows[run.settle(item)] = replace(rows, ordered=False)


def note_element_set(run: Run, container: Value, value: Value) -> None:
    """`rows[rank] = own`: the program may put its own rows back."""
    if not run.rows or run.settle(value) in run.rows:
        return
    for holder in (container, *_parts(run, container)):
        if holder in run.rows:
            for gather in run.rows[holder].gathers:
                gather.restored = True


def note_labels(run: Run, call: Call, result: Value) -> None:
    """`torch.arange(n)`: the numbers of rows from zero."""
    if len(call.args) == 1 and not call.open and not {"start", "step"} & set(call.kwargs):
        if not depends_on_rank(call.args[0]):
            run.row_numbers.add(result)


def note_operation(run: Run, name: str, operands: Iterable[Value], result: Value) -> None:
    """Note what the result of an operation has of its operands.

    name: that of the function or method of torch, or "matmul", "div", "mul" or "other" for an
    operator.
    """
    given = [run.settle(one) for one in operands]
    if not isinstance(result, Unknown | TensorValue) or any(one is result for one in given):
        return
    if name in _KEEPS_LABELS and given and given[0] in run.row_numbers:
        run.row_numbers.add(result)
    if name in ENDS_GRADIENT:
        return
    tensors = given[:1] if name in _JOINS else given  # without the dimension
    parts = [part for one in tensors for part in _parts(run, one)]
    if any(part in run.with_gradient for part in parts) and _has_autograd(run):
        run.with_gradient.add(result)
    if not run.rows:
        return
    if name == "cross_entropy" and len(given) > 1:
        _note_labels_of(run, given[0], given[1])
    rows = _rows_of_result(run, name, given, parts)
    if rows is not None:
        run.rows[result] = rows if _has_autograd(run) else _as_constants(rows)


def _as_constants(rows: Rows) -> Rows:
    """The rows in a result that is computed without gradients, as those of a target are."""
    return replace(rows, gathers=tuple(replace(one, cuts=False) for one in rows.gathers))


def _parts(run: Run, value: Value) -> list[Value]:
    return [run.settle(one) for one in value.items] if isinstance(value, Sequence) else [value]


def _rows_of_result(run: Run, name: str, given: list[Value], parts: list[Value]) -> Rows | None:
    found = [run.rows[part] for part in parts if part in run.rows]
    if not found:
        whole = run.rows.get(given[0]) if given else None  # a list without known elements
        return whole if name in _JOINS else None
    if len(gathers := dict.fromkeys(one for rows in found for one in rows.gathers)) > 1:
        return Rows((*gathers,)[:MAX_GATHERS])
    rows = found[0]
    if name in _JOINS:
        if len(found) < len(parts):
            return None  # with other rows, such as the rank's own
        return replace(rows, ordered=given[0] is rows.gathers[0].holder)
    if name in _PRODUCTS and len(given) == 2:
        own = given[0] not in run.rows and given[0] in run.with_gradient
        return replace(rows, ordered=False, scores=own and rows.ordered)
    if name in _SCALES:
        return replace(rows, scores=rows.scores and len(found) == 1)
    if name in _KEEPS_ROWS:
        return replace(rows, scores=False)
    return replace(rows, ordered=False, scores=False)


def _note_labels_of(run: Run, scores: Value, labels: Value) -> None:
    rows = run.rows.get(scores)
    if rows is not None and rows.scores and labels in run.row_numbers:
        rows.gathers[0].event.labels_from_zero = labels.created_at


def part_of(run: Run, value: Value, part: Value) -> Value:
    """The value of `value[...]`, of which it is not known which rows it has."""
    rows = run.rows.get(value)
    if rows is None or part is not value or not isinstance(value, TensorValue | Unknown):
        return part
    made = replace(value)
    run.rows[made] = replace(rows, ordered=False, scores=False)
    return made


def note_backward(run: Run, loss: Value, event: BackwardRun) -> None:
    """A backward pass of a loss, whose gathered rows have no gradients."""
    rows = run.rows.get(loss)
    for gather in rows.gathers if rows is not None else ():
        if gather.cuts and not gather.restored:
            gather.event.gradient_lost = event.index

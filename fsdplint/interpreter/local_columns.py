"""Outputs of which each rank of tensor parallelism has its own columns.

`ColwiseParallel()` splits the weight of a layer by its rows, and its output by the last dimension.
By default, each rank gets its columns as a plain tensor.
"""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import Columns, TensorValue
from fsdplint.interpreter.user_settings import is_setting
from fsdplint.interpreter.values import Const, LibraryObject, Sequence, Unknown, Value, constant
from fsdplint.trace import ColumnsCompared, ColumnsViewed, TensorParallel

_VIEWS = frozenset({"reshape", "view"})
_RESHAPES = _VIEWS | {"flatten"}
_COLUMNS, _OUTPUT = "ColwiseParallel", "PrepareModuleOutput"
# Functions and methods that compare the elements of a dimension.
_CHOOSES = frozenset("argmax log_softmax softmax topk".split())
# Operations that keep the columns of their first operand.
_KEEPS = frozenset(
    "bfloat16 clone contiguous cpu cuda div double flatten float half mul reshape to type type_as "
    "view".split()
)


# Further ones, which keep the division of the columns into heads.
_KEEPS_HEADS = frozenset(
    "add expand movedim mul neg permute repeat_interleave sub swapaxes swapdims transpose".split()
)
_ATTENTION = "scaled_dot_product_attention"
_INPUTS = 3  # query, key and value, or the equation and operands of `einsum`
_PRODUCTS = frozenset("baddbmm bmm einsum matmul".split())  # of queries and keys


def note_style(run: Run, event: TensorParallel, module: str, style: Value) -> None:
    """Note what the output of a module is under a style of a plan."""
    name = style.name.rpartition(".")[2] if isinstance(style, LibraryObject) else ""
    found = _columns_of(run, event, style) if name == _COLUMNS else None
    if found is not None:
        run.column_layers[module] = found
    elif name in (_COLUMNS, _OUTPUT):
        run.column_layers.pop(module, None)


def _columns_of(run: Run, event: TensorParallel, style: Value) -> Columns | None:
    """The columns of the output under a style that certainly splits it by its columns."""
    if not isinstance(style, LibraryObject) or style.open:
        return None
    local, layout = style.get("use_local_output"), style.get("output_layouts")
    local = run.settle(local) if local is not None else Const(True)
    if layout is not None and not _is_last(run, run.settle(layout)):
        return None
    if not isinstance(local, Const) or not isinstance(local.value, bool):
        return None
    return Columns(event, as_dtensor=not local.value)


def _is_last(run: Run, layout: Value) -> bool:
    """Whether a layout is `None`, which is the default, or `Shard(-1)`."""
    if isinstance(layout, LibraryObject) and layout.name.endswith(".Shard"):
        return constant(layout.get("dim")) == -1
    return isinstance(layout, Const) and layout.value is None


def note_output(run: Run, module: str, output: Value, returned: Columns | None) -> None:
    """The output of a call has the columns of the rank, if the layer or what it returns has."""
    found = run.column_layers.get(module, returned)
    if found is not None:
        run.columns[output] = found


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """Note that the result of an operation has the columns of the rank."""
    found = run.columns.get(operands[0]) if operands else None
    if found is None or not isinstance(result, Unknown | TensorValue):
        return
    if name == "to_local" and found.as_dtensor:
        run.columns.setdefault(result, replace(found, as_dtensor=False))
    elif name in _KEEPS or (found.heads and name in _KEEPS_HEADS):
        reshaped = found.reshaped or name in _RESHAPES
        run.columns.setdefault(result, replace(found, reshaped=reshaped))


def note_rows(run: Run, value: Value, node: cst.Subscript, result: Value) -> None:
    """`logits[:, -1]` and `logits[:, -1, :]` have the columns of the whole."""
    found = run.columns.get(value)
    parts = [one.slice for one in node.slice]
    if found is None or len(parts) not in (2, 3) or not _is_whole(parts[0]):
        return
    if isinstance(parts[1], cst.Index) and (len(parts) == 2 or _is_whole(parts[2])):
        if isinstance(result, Unknown | TensorValue) and result is not value:
            run.columns.setdefault(result, found)


def _is_whole(part: cst.BaseSlice) -> bool:
    return isinstance(part, cst.Slice) and part.lower is None and part.upper is None


def note_view(run: Run, name: str, operands: list[Value], node: cst.CSTNode, result: Value) -> None:
    """Note that a view of such an output has a setting of the program before its last dimension.

    If an attention gets the view, the setting is the number of all heads, and the size of a head,
    which torch computes for `-1`, is too small. For another use, the numbers may be right.
    """
    found = run.columns.get(operands[0]) if operands and name in _VIEWS else None
    if found is None or found.as_dtensor or not isinstance(node, cst.Call):
        return
    sizes = [one for operand in operands[1:] for one in _sizes(run, operand)]
    texts = [run.text(one) for argument in node.args for one in _nodes(argument.value)]
    if len(sizes) != len(texts) or len(sizes) < 2 or constant(sizes[-1]) != -1:
        return
    if _is_undivided(sizes[-2]) and isinstance(result, Unknown | TensorValue):
        made = replace(found, reshaped=True, heads=texts[-2], viewed_at=run.site(node))
        run.columns[result] = made


def note_attention(run: Run, name: str, operands: list[Value]) -> None:
    """Record an attention over such views, at the first of them."""
    found = [run.columns.get(one) for one in operands]
    views = [one for one in found[:_INPUTS] if one is not None and one.viewed_at is not None]
    is_product = name in _PRODUCTS and len(views) > 1
    if views and (is_product or name == _ATTENTION):
        event = run.emit(
            ColumnsViewed, run.executing, parallel=views[0].parallel.index, heads=views[0].heads
        )
        event.site = views[0].viewed_at or event.site


def _sizes(run: Run, value: Value) -> list[Value]:
    value = run.settle(value)
    return [run.settle(one) for one in value.items] if isinstance(value, Sequence) else [value]


def _nodes(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The elements of a tuple or list, or the expression itself."""
    if isinstance(node, cst.Tuple | cst.List):
        return [one.value for one in node.elements]
    return [node]


def _is_undivided(value: Value) -> bool:
    """Whether a number is a setting as the user gives it, which nothing has divided."""
    return is_setting(value) and isinstance(value, Unknown) and "local" not in value.origin


def note_loss(run: Run, name: str, operands: list[Value], node: cst.CSTNode) -> None:
    """Record a cross entropy of such an output, which needs the columns of all ranks."""
    found = run.columns.get(operands[0]) if operands and name == "cross_entropy" else None
    if found is not None and not found.as_dtensor:
        run.emit(ColumnsCompared, node, parallel=found.parallel.index)


def note_choice(run: Run, name: str, operands: list[Value], call: Call) -> None:
    """Record a choice among the columns of one rank: `argmax`, `topk`, `softmax` over the last
    dimension."""
    found = run.columns.get(operands[0]) if operands and name in _CHOOSES else None
    if found is None or found.as_dtensor or found.reshaped:
        return
    given = call.kwargs.get("dim")
    if given is None and name != "topk" and len(operands) > 1:
        given = operands[1]
    if (given is None and name == "topk") or constant(given) == -1:
        run.emit(ColumnsCompared, call.node, parallel=found.parallel.index, api=name)

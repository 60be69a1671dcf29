"""Outputs of which each rank of tensor parallelism has its own columns.

`ColwiseParallel()` splits the weight of a layer by its rows, and its output by the last dimension.
By default, each rank gets its columns as a plain tensor.
"""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import TensorValue
from fsdplint.interpreter.values import Const, LibraryObject, Sequence, Unknown, Value, constant
from fsdplint.trace import ColumnsCompared, ColumnsViewed, TensorParallel

_VIEWS = frozenset({"reshape", "view"})
_PLAIN = re.compile(r"[\w.]+(\(\))?(\.\w+)+|[\w.]+(\[[\w\"']+\])+")  # `args.heads`
_COLUMNS, _OUTPUT = "ColwiseParallel", "PrepareModuleOutput"
# Operations that keep the columns of their first operand.
_KEEPS = frozenset(
    "bfloat16 clone contiguous cpu cuda div double flatten float half mul reshape to type type_as "
    "view".split()
)


def note_style(run: Run, event: TensorParallel, module: str, style: Value) -> None:
    """Note what the output of a module is under a style of a plan."""
    name = style.name.rpartition(".")[2] if isinstance(style, LibraryObject) else ""
    if name == _COLUMNS and isinstance(style, LibraryObject) and _gives_columns(run, style):
        run.column_layers[module] = event
    elif name in (_COLUMNS, _OUTPUT):
        run.column_layers.pop(module, None)


def _gives_columns(run: Run, style: LibraryObject) -> bool:
    """Whether a style certainly splits the output by its columns, as a plain tensor."""
    local, layout = style.get("use_local_output"), style.get("output_layouts")
    local = run.settle(local) if local is not None else Const(True)
    splits = layout is None or _is_last(run, run.settle(layout))
    return splits and not style.open and isinstance(local, Const) and local.value is True


def _is_last(run: Run, layout: Value) -> bool:
    """Whether a layout is `None`, which is the default, or `Shard(-1)`."""
    if isinstance(layout, LibraryObject) and layout.name.endswith(".Shard"):
        return constant(layout.get("dim")) == -1
    return isinstance(layout, Const) and layout.value is None


def note_output(run: Run, module: str, output: Value, returned: TensorParallel | None) -> None:
    """The output of a call has the columns of the rank, if the layer or what it returns has."""
    found = run.column_layers.get(module, returned)
    if found is not None:
        run.columns[output] = found


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """Note that the result of an operation has the columns of the rank."""
    found = run.columns.get(operands[0]) if operands else None
    if found is not None and name in _KEEPS and isinstance(result, Unknown | TensorValue):
        run.columns.setdefault(result, found)


def note_view(run: Run, name: str, operands: list[Value], node: cst.CSTNode) -> None:
    """Record a view of such an output with the number of all heads, a setting of the program.

    The size of a head, which torch computes for `-1`, is then too small. Other numbers than that of
    the heads may be right, so that the name of the number counts.
    """
    found = run.columns.get(operands[0]) if operands and name in _VIEWS else None
    if found is None or not isinstance(node, cst.Call):
        return
    sizes = [one for operand in operands[1:] for one in _sizes(run, operand)]
    texts = [run.text(one) for argument in node.args for one in _nodes(argument.value)]
    if len(sizes) != len(texts) or len(sizes) < 2 or constant(sizes[-1]) != -1:
        return
    if "head" in texts[-2].lower() and _is_setting(sizes[-2]):
        run.emit(ColumnsViewed, node, parallel=found.index, heads=texts[-2])


def _sizes(run: Run, value: Value) -> list[Value]:
    value = run.settle(value)
    return [run.settle(one) for one in value.items] if isinstance(value, Sequence) else [value]


def _nodes(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The elements of a tuple or list, or the expression itself."""
    if isinstance(node, cst.Tuple | cst.List):
        return [one.value for one in node.elements]
    return [node]


def _is_setting(value: Value) -> bool:
    """Whether a number is a setting as the user gives it, which nothing has divided."""
    if not isinstance(value, Unknown) or value.varying or "local" in value.origin:
        return False
    return _PLAIN.fullmatch(value.origin) is not None


def note_loss(run: Run, name: str, operands: list[Value], node: cst.CSTNode) -> None:
    """Record a cross entropy of such an output, which needs the columns of all ranks."""
    found = run.columns.get(operands[0]) if operands and name == "cross_entropy" else None
    if found is not None:
        run.emit(ColumnsCompared, node, parallel=found.index)

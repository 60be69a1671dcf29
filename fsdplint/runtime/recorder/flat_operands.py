"""Errors of operations that got a parameter of FSDP1 that was not gathered."""

from __future__ import annotations

import ast
import gc
import linecache
import re
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

# What torch says of a tensor with the shape of a shard.
_SHAPE = re.compile(r"size mismatch|shapes cannot be multiplied|must be (a matrix|2-D)|1-D tensor")


def refused_product(error: BaseException, traceback: TracebackType, frame: FrameType) -> str | None:
    """The function that a line of the program called with a shard of FSDP1; None for other errors.

    traceback: the entry of the traceback for the frame of the line.
    """
    if not isinstance(error, RuntimeError) or not _SHAPE.search(str(error)):
        return None
    node = _failed_expression(traceback, frame)
    if isinstance(node, ast.Call):
        operands: list[ast.expr] = [*node.args, *(one.value for one in node.keywords)]
        name = ast.unparse(node.func).rpartition(".")[2]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        operands, name = [node.left, node.right], "matmul"
    else:
        return None
    shards = list(_shards())
    read = (_read(part, frame) for one in operands for part in ast.walk(one))
    return name if any(value is shard for value in read for shard in shards) else None


def _failed_expression(traceback: TracebackType, frame: FrameType) -> ast.expr | None:
    """The expression that raised; None before Python 3.11, which does not know it."""
    if not hasattr(frame.f_code, "co_positions"):
        return None
    first, last, start, end = list(frame.f_code.co_positions())[traceback.tb_lasti // 2]
    if first is None or last is None or start is None or end is None:
        return None
    lines = [
        linecache.getline(frame.f_code.co_filename, n).encode() for n in range(first, last + 1)
    ]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        return ast.parse(f"({b''.join(lines).decode()})", mode="eval").body
    except SyntaxError:
        return None


def _read(node: ast.AST, frame: FrameType) -> Any:
    """The value of a name or a chain of attributes; None for other expressions."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return getattr(_read(node.value, frame), node.attr, None)
    return None


def _shards() -> Iterator[Any]:
    """The parameters of FSDP1 that hold less than the whole parameter now."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    for wrapper in gc.get_objects():
        if not isinstance(wrapper, FullyShardedDataParallel):
            continue
        flat = getattr(getattr(wrapper, "_handle", None), "flat_param", None)
        parameters = getattr(flat, "_params", None) or ()
        for parameter, shape in zip(parameters, getattr(flat, "_shapes", ()), strict=False):
            if tuple(parameter.shape) != tuple(shape):
                yield parameter

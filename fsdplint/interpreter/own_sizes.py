"""Tensors whose size certainly differs between ranks.

Each rank gives them a size of its own, makes them of a list that its data fill, or selects their
elements by its data.
"""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.own_lengths import own_length
from fsdplint.interpreter.rank_local import length_of_selection, local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Const,
    RankLocal,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
)

_JOINS = frozenset(f"torch.{name}" for name in "cat concat hstack stack vstack".split())
# Methods that keep the size of a tensor.
_KEEP = frozenset(
    "clone contiguous cpu cuda detach double float half int long to new_tensor xpu".split()
)


def has_own_size(value: Value | None) -> bool:
    """Whether a value is a tensor of another size on each rank."""
    if not isinstance(value, Unknown):
        return False
    local = local_of(value)
    return value.own_size or (local is not None and local.selected)


def part_of_tensor(run: Run, value: Value, node: cst.Subscript) -> Value:
    """A slice of a tensor, which may have a size of its own on each rank, or no longer have it."""
    if not isinstance(value, Unknown):
        return value
    items = [one.slice for one in node.slice if isinstance(one.slice, cst.Slice)]
    cut = next((local for item in items if (local := _cut_at_own_number(run, item))), None)
    if cut is not None and local_of(value) is not None:
        return replace(value, parts={}, own_size=True, rank_local=RankLocal(cut.source))
    if len(items) == len(node.slice) and not any(one.upper or one.step for one in items):
        return value  # `x[:, 4:]`
    if value in run.padded:
        return replace(value, parts={})  # `x[:, :512]` may cut it to one length
    return _without_own_size(value)


def _cut_at_own_number(run: Run, item: cst.Slice) -> RankLocal | None:
    """What makes one bound of a slice another number on each rank, where the other is constant.

    `x[start : start + size]` has one size if each rank has a start of its own.
    """
    bounds = [one for one in (item.lower, item.upper) if one is not None]
    values = [(one, run.evaluations.get(one)) for one in bounds]
    found = [local for _, value in values if (local := local_of(value)) is not None]
    others = [one for one, value in values if local_of(value) is None]
    constant = all(
        isinstance(one, cst.Integer) or isinstance(run.evaluations.get(one), Const)
        for one in others
    )
    if len(found) != 1 or item.step is not None or not constant:
        return None
    local = found[0]
    return None if local.counts or local.part or local.position else local


def _without_own_size(value: Unknown) -> Unknown:
    """A part of a tensor that may have the same size on all ranks."""
    if not has_own_size(value):
        return value
    local = local_of(value)
    kept = RankLocal(local.source) if local is not None else None
    return replace(value, parts={}, own_size=False, rank_local=kept)


def fills_by_data(value: Value | None) -> bool:
    """Whether each rank's data certainly decide how many elements a list has.

    The parts that a slice gives to the ranks may have the same length.
    """
    held = own_length(value)
    return held is not None and not held.counts


def note_call(function: Value, call: Call, result: Value) -> None:
    """Note that the tensor that a call returns has another size on each rank."""
    if not isinstance(result, Unknown) or result.created_at is not None or call.open:
        return
    if isinstance(function, Symbol):
        first = call.args[0] if call.args else None
        if function.name in _JOINS:
            result.own_size = isinstance(first, Sequence) and fills_by_data(first)
        elif function.name.startswith("torch.") and function.name.endswith("_like"):
            result.own_size = has_own_size(first)
    elif isinstance(function, Unknown) and has_own_size(function.owner):
        parts = function.owner.parts if function.owner is not None else {}
        result.own_size = any(parts.get(name) is function for name in _KEEP)


def gathers_own_sizes(buffers: Value | None, tensor: Value | None) -> bool:
    """Whether the buffers for the tensors of all ranks have the size of this rank's tensor."""
    if not isinstance(buffers, Sequence) or not buffers.items or not has_own_size(tensor):
        return False
    return all(map(has_own_size, buffers.items))


def note_element(value: Unknown, index: Value, element: Value) -> None:
    """Note that an element of a shape is a number of elements that the rank's own data choose."""
    owner = value.owner
    if owner is None or owner.parts.get("shape") is not value or constant(index) != 0:
        return
    if isinstance(element, Unknown):
        element.rank_local = length_of_selection(local_of(owner)) or element.rank_local

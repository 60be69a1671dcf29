"""Tensors that `pad_sequence` makes as long as the longest of the rank's own rows.

Such a length differs between ranks, unlike the other sizes of a batch.
"""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.method_names import attribute_name
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, RankLocal, Symbol, Unknown, Value, constant

_PADS = "torch.nn.utils.rnn.pad_sequence"
# Methods that keep the size of a tensor.
_KEEP = frozenset(
    "bfloat16 clone contiguous cpu cuda detach double float half int long pin_memory to xpu".split()
)


def note_call(run: Run, function: Value, call: Call, result: Value) -> None:
    """Note that a call returns a padded tensor, or reads the length of one."""
    if not isinstance(result, Unknown):
        return
    if isinstance(function, Symbol) and function.name == _PADS:
        first = constant(call.arg(1, "batch_first") or Const(False))
        if isinstance(first, bool) and not call.open and call.args:
            run.padded[result] = int(first)
        return
    owner = function.owner if isinstance(function, Unknown) else None
    if owner is None or owner not in run.padded or not isinstance(function, Unknown):
        return
    name = attribute_name(function)
    if name in _KEEP:
        run.padded[result] = run.padded[owner]
    elif name == "numel" or (name == "size" and _names_length(run, owner, call.arg(0, "dim"))):
        result.rank_local = _length(owner)


def note_element(run: Run, value: Unknown, index: Value, element: Value) -> None:
    """Note that an element of a shape is the length of a padded tensor."""
    owner = value.owner
    if owner is None or owner not in run.padded or owner.parts.get("shape") is not value:
        return
    if isinstance(element, Unknown) and _names_length(run, owner, index):
        element.rank_local = _length(owner)


def _names_length(run: Run, owner: Unknown, dimension: Value | None) -> bool:
    return dimension is not None and constant(dimension) == run.padded[owner]


def _length(owner: Unknown) -> RankLocal | None:
    local = local_of(owner)
    return RankLocal(local.source, immutable=True) if local is not None else None

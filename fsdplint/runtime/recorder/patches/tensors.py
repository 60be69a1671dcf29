"""Records numbers and memory that the program reads from DTensors."""

from __future__ import annotations

import functools
import re
import traceback
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching, values
from fsdplint.runtime.recorder.flat_operands import refused_product
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.sites import OWN, is_direct, kind_of
from fsdplint.trace import Layout, PartialRead, RawRead, ShardComputed, TensorsMixed

_RAW = ("numpy", "tolist", "data_ptr", "untyped_storage", "storage", "__array__")
_REFUSED = re.compile(r"aten\.(\w+)\.\w+ got mixed torch\.Tensor and DTensor")
# Operations that update weights.
_NAMES = ("lerp", "add", "sub", "copy")
_UPDATES = {f"{kind}{name}_" for kind in ("", "_foreach_") for name in _NAMES}
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "embedding"}
_READERS = {"item": "item", "__float__": "float", "__int__": "int", "__bool__": "bool"}


def install() -> None:
    from torch.distributed.tensor import DTensor

    owner: Any = DTensor
    for name, api in _READERS.items():
        before = functools.partial(_record_number, api)
        setattr(owner, name, patching.add_watcher(getattr(owner, name), before))
    for name in _RAW:
        before = functools.partial(_record_raw_read, name)
        setattr(owner, name, patching.add_watcher(getattr(owner, name), before))


def _record_number(
    api: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Record that a number is read from a DTensor that is not reduced over the ranks."""
    tensor = args[0]
    mesh = tensor.device_mesh
    for dimension, placement in enumerate(tensor.placements):
        if placement.is_partial() and mesh.size(dimension) > 1:
            reduction = getattr(placement, "norm_type", None)
            current().recorder.event(
                PartialRead,
                frame,
                api=api,
                reduction="norm" if reduction is not None else str(placement.reduce_op),
            )
            return


def _record_raw_read(
    api: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Record a read of the memory of a DTensor, of which this rank has only a part."""
    tensor = args[0]
    if values.is_sharded(tensor) and tensor.device_mesh.size() > 1:
        name = "numpy.asarray" if api == "__array__" else api
        current().recorder.event(RawRead, frame, api=name, layout=Layout.SHARDED)


def note_error(error: BaseException) -> None:
    """Record that the program ended at an operation with a parameter that is not gathered."""
    _note_flat_operand(error)
    found = _REFUSED.search(str(error))
    name = found.group(1) if found is not None else ""
    if name not in _UPDATES | _PRODUCTS:
        return
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    while frames and kind_of(frames[-1].f_code.co_filename) == OWN:
        frames.pop()
    if frames and is_direct(frames[-1]):
        if name in _UPDATES:
            current().recorder.event(TensorsMixed, frames[-1], api=name)
        else:
            current().recorder.event(ShardComputed, frames[-1], api=name)


def _note_flat_operand(error: BaseException) -> None:
    entry, own = error.__traceback__, None
    while entry is not None:
        if kind_of(entry.tb_frame.f_code.co_filename) != OWN:
            own = entry
        entry = entry.tb_next
    if own is None or not is_direct(own.tb_frame):
        return
    api = refused_product(error, own, own.tb_frame)
    if api is not None:
        current().recorder.event(ShardComputed, own.tb_frame, api=api)

"""Plain numbers that the program makes of DTensors."""

from __future__ import annotations

import functools
from types import FrameType
from typing import Any

from fsdplint.shim import patching, values
from fsdplint.shim.recorder import RECORDER

_RAW = ("numpy", "tolist", "data_ptr", "untyped_storage", "storage", "__array__")
_READERS = {"item": "item", "__float__": "float", "__int__": "int", "__bool__": "bool"}


def install() -> None:
    from torch.distributed.tensor import DTensor

    owner: Any = DTensor
    for name, api in _READERS.items():
        before = functools.partial(_read, api)
        setattr(owner, name, patching.watched(getattr(owner, name), before))
    for name in _RAW:
        before = functools.partial(_raw, name)
        setattr(owner, name, patching.watched(getattr(owner, name), before))


def _read(api: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A number made of a DTensor whose parts have not been put together over the ranks."""
    tensor = args[0]
    mesh = tensor.device_mesh
    for dimension, placement in enumerate(tensor.placements):
        if placement.is_partial() and mesh.size(dimension) > 1:
            reduction = getattr(placement, "norm_type", None)
            RECORDER.event(
                "partial-read",
                frame,
                api=api,
                reduction="norm" if reduction is not None else str(placement.reduce_op),
            )
            return


def _raw(api: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A DTensor's memory is asked for, of which this rank has a part."""
    tensor = args[0]
    if values.is_sharded(tensor) and tensor.device_mesh.size() > 1:
        name = "numpy.asarray" if api == "__array__" else api
        RECORDER.event("raw-read", frame, api=name, layout=values.SHARDED)

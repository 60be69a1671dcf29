"""Finds and reads the checkpoints that a program wrote."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".tar", ".safetensors")
_DCP = ".metadata"


def find_checkpoints(folder: Path, original: Path | None = None) -> dict[str, Path]:
    """Checkpoints under a folder that are not in the folder that it was copied from.

    A distributed checkpoint is a folder with a file `.metadata`; it counts as one.
    """
    found: dict[str, Path] = {}
    for at, names, files in os.walk(folder):
        here = Path(at)
        if _DCP in files:
            names.clear()
            candidates = [here]
        else:
            candidates = [here / name for name in files if name.endswith(_SUFFIXES)]
        for path in candidates:
            relative = path.relative_to(folder)
            if original is None or _differs(path, original / relative):
                found[str(relative)] = path
    return found


def _differs(path: Path, other: Path) -> bool:
    if path.is_dir():
        path, other = path / _DCP, other / _DCP
    try:
        return not other.exists() or path.stat().st_mtime_ns != other.stat().st_mtime_ns
    except OSError:
        return True


def read_checkpoint(path: Path) -> dict[str, Any]:
    """All values of a checkpoint by their dotted paths: tensors, numbers, strings.

    Unpickling is safe here: the program under proof has just written the file itself.

    Raises:
        Exception: any error of torch or safetensors while reading.
    """
    import torch

    if path.is_dir():
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

        # In the copy of the project, which is removed even if this process is killed.
        with tempfile.TemporaryDirectory(prefix=".fsdplint-", dir=path.parent) as folder:
            file = os.path.join(folder, "full.pt")
            dcp_to_torch_save(path, file)
            value = torch.load(file, map_location="cpu", weights_only=False)
    elif path.suffix == ".safetensors":
        from safetensors.torch import load_file

        value = load_file(path)
    else:
        with _without_mesh_warning():
            value = torch.load(path, map_location="cpu", weights_only=False)
    return dict(_flat("", value))


def is_part(value: Any) -> bool:
    """Whether a value is a DTensor of which only one rank's part was written.

    The part of a DTensor that is sharded over a single rank is the full tensor.
    """
    local = getattr(value, "_local_tensor", None)
    return local is not None and local.shape != value.shape


def holds_parts(path: Path) -> bool:
    """Whether a checkpoint holds single ranks' parts of tensors; False if it is unreadable."""
    try:
        return any(is_part(value) for value in read_checkpoint(path).values())
    except Exception:
        return False


@contextlib.contextmanager
def _without_mesh_warning() -> Iterator[None]:
    """Silence torch's warning about reading a mesh without a process group."""
    logger = logging.getLogger("torch.distributed.device_mesh")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{path}.{key}" if path else str(key), item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _flat(f"{path}.{index}", item)
    elif hasattr(value, "state_dict") and not hasattr(value, "shape"):
        with contextlib.suppress(Exception):
            yield from _flat(path, value.state_dict())
    else:
        yield path, value

"""What the two programs wrote to disk: read back and compared."""

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


def written(folder: Path, original: Path | None = None) -> dict[str, Path]:
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


def read(path: Path) -> dict[str, Any]:
    """Everything in a checkpoint by its dotted path: tensors, numbers, strings.

    Raises whatever reading raises. The file was just written by the program that is being proven,
    so nothing is run that was not run before.
    """
    import torch

    if path.is_dir():
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

        # Next to it, so that it goes with the copy of the project, whatever becomes of us.
        with tempfile.TemporaryDirectory(prefix=".fsdplint-", dir=path.parent) as folder:
            whole = os.path.join(folder, "whole.pt")
            dcp_to_torch_save(path, whole)
            value = torch.load(whole, map_location="cpu", weights_only=False)
    elif path.suffix == ".safetensors":
        from safetensors.torch import load_file

        value = load_file(path)
    else:
        with _no_word_of_meshes():
            value = torch.load(path, map_location="cpu", weights_only=False)
    return dict(_flat("", value))


def is_part(value: Any) -> bool:
    """Whether a value of a state is a DTensor of which one rank's part was written.

    A DTensor that is sharded over a single rank is whole.
    """
    local = getattr(value, "_local_tensor", None)
    return local is not None and local.shape != value.shape


def holds_parts(path: Path) -> bool:
    """Whether a checkpoint holds single ranks' parts of tensors; no where it cannot be read."""
    try:
        return any(is_part(value) for value in read(path).values())
    except Exception:
        return False


@contextlib.contextmanager
def _no_word_of_meshes() -> Iterator[None]:
    """Without torch's warning that a mesh was read where no process group is."""
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

"""Records `parallelize_module`, and the meshes that functions get."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recording import current
from fsdplint.trace import TensorParallel


def install() -> None:
    try:
        import torch.distributed.tensor.parallel as parallel
    except ImportError:
        return
    patching.watch_function(parallel, "parallelize_module", _record)


def _record(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    module = argument(args, kwargs, 0, "module")
    mesh = argument(args, kwargs, 1, "device_mesh")
    plan = argument(args, kwargs, 2, "parallelize_plan")
    recording.recorder.event(
        TensorParallel,
        frame,
        module=recording.objects.module(module),
        parts=tuple(recording.objects.module(part) for part in _parts(module, plan)),
        without_module=tuple(
            path for path in _styles(plan) if not any(True for _ in _at(module, _names(path)))
        ),
        whole_mesh=whole_mesh(mesh),
        dims=dimensions(mesh),
        splits_inputs=any(map(_splits_input, _styles(plan).values())),
    )


def _styles(plan: Any) -> dict[str, Any]:
    """The styles of a plan by their paths."""
    return plan if isinstance(plan, dict) else {"": plan}


def _splits_input(style: Any) -> bool:
    """Whether an input of a style is a part of the batch on each rank."""
    layouts = getattr(style, "input_layouts", None) or ()
    several = layouts if isinstance(layouts, (list, tuple)) else (layouts,)
    return any(getattr(layout, "dim", None) == 0 for layout in several)


def _parts(module: Any, plan: Any) -> Iterator[Any]:
    """The modules whose parameters a plan distributes."""
    for path, style in _styles(plan).items():
        if type(style).__name__ in TensorParallel.STYLES:
            yield from _at(module, _names(path))


def _names(path: str) -> list[str]:
    return path.split(".") if path else []


def _at(module: Any, path: list[str]) -> Iterator[Any]:
    if not path:
        yield module
        return
    for name, child in module.named_children():
        if fnmatch(name, path[0]):
            yield from _at(child, path[1:])


def whole_mesh(mesh: Any) -> str:
    """The name of a mesh, or of the mesh that it is a part of; empty without a name."""
    names = current().objects.names
    return names.get(mesh) or names.get(_root(mesh)) or "" if mesh is not None else ""


def _root(mesh: Any) -> Any:
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    from torch.distributed import device_mesh  # before torch 2.10

    resources = getattr(device_mesh, "_mesh_resources", None)
    return mesh if resources is None else resources.get_root_mesh(mesh)


def dimensions(mesh: Any) -> tuple[str, ...]:
    """The names of the dimensions of a mesh; empty if they have none."""
    return tuple(getattr(mesh, "mesh_dim_names", None) or ())

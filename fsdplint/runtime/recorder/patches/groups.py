"""Process groups, devices and meshes."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recording import current
from fsdplint.trace import DeviceSet, JoinUsed, MeshBuilt, ProcessGroupDestroyed, ProcessGroupInit

# Seconds that collectives wait before they raise; set by the harness that runs examples.
TIMEOUT_VARIABLE = "FSDPLINT_GROUP_TIMEOUT"


def install() -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed.algorithms.join as join
    import torch.distributed.device_mesh as device_mesh

    _shorten_timeout(dist)
    patching.watch_function(dist, "init_process_group", _init, direct=False)
    patching.watch_function(dist, "destroy_process_group", _destroy)
    patching.watch_function(torch.cuda, "set_device", _set_device)
    for name in ("set_device_index", "set_device_idx"):
        if hasattr(torch, "accelerator"):
            patching.watch_function(torch.accelerator, name, _set_device)
    patching.watch_function(device_mesh, "init_device_mesh", _mesh, _mesh_made)
    patching.watch_method(device_mesh.DeviceMesh, "__init__", _mesh_object)
    patching.watch_method(join.Join, "__init__", _join)


def _shorten_timeout(dist: Any) -> None:
    original = dist.init_process_group
    import functools

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        seconds = os.environ.get(TIMEOUT_VARIABLE)
        if seconds and len(args) < 3:
            kwargs["timeout"] = timedelta(seconds=float(seconds))
        return original(*args, **kwargs)

    patching.replace(original, init_process_group)
    patching.apply_replacements()


def _init(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    backend = argument(args, kwargs, 0, "backend")
    current().recorder.event(
        ProcessGroupInit,
        frame,
        backend=None if backend is None else str(backend),
        collective=True,
    )


def _destroy(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    recording.recorder.event(ProcessGroupDestroyed, frame)
    failing = sys.exc_info()[0] is not None  # in a `finally` while an error goes up
    if not args and kwargs.get("group") is None and not failing:
        # The last moment at which the full parameters can be gathered.
        recording.final_state.capture()


def _join(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    import torch

    recording = current()
    given = argument(args, kwargs, 1, "joinables", ())
    modules = [
        recording.objects.module(item) for item in given if isinstance(item, torch.nn.Module)
    ]
    recording.recorder.event(JoinUsed, frame, modules=tuple(modules))


def _set_device(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    device = argument(args, kwargs, 0, "device")
    current().recorder.event(DeviceSet, frame, device=str(device))


def _mesh(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    recording = current()
    device = argument(args, kwargs, 0, "device_type")
    shape = argument(args, kwargs, 1, "mesh_shape", ())
    entry = recording.recorder.event(
        MeshBuilt,
        frame,
        mesh=recording.objects.fresh("mesh"),
        device_type=str(device),
        shape=tuple(int(size) for size in shape),
        dim_names=tuple(str(name) for name in kwargs.get("mesh_dim_names") or ()),
        collective=True,
    )
    return entry.event.mesh


def _mesh_made(name: str, mesh: Any) -> None:
    current().objects.names.set(mesh, name)


def _mesh_object(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    device = argument(args, kwargs, 1, "device_type")
    mesh = argument(args, kwargs, 2, "mesh")
    shape = list(getattr(mesh, "shape", ()))
    recording.recorder.event(
        MeshBuilt,
        frame,
        mesh=recording.objects.fresh("mesh"),
        device_type=str(device),
        shape=tuple(int(size) for size in shape),
        dim_names=tuple(str(name) for name in kwargs.get("mesh_dim_names") or ()),
        collective=True,
    )

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

# Seconds after which a collective raises; set by the harness that runs examples.
TIMEOUT_VARIABLE = "FSDPLINT_GROUP_TIMEOUT"


def install() -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed.algorithms.join as join
    import torch.distributed.device_mesh as device_mesh

    _shorten_timeout(dist)
    patching.watch_function(dist, "init_process_group", _record_init, direct=False)
    patching.watch_function(dist, "destroy_process_group", _record_destroy)
    patching.watch_function(torch.cuda, "set_device", _record_device)
    for name in ("set_device_index", "set_device_idx"):
        if hasattr(torch, "accelerator"):
            patching.watch_function(torch.accelerator, name, _record_device)
    patching.watch_function(device_mesh, "init_device_mesh", _record_mesh, _name_mesh)
    patching.watch_method(device_mesh.DeviceMesh, "__init__", _record_mesh_object)
    patching.watch_method(join.Join, "__init__", _record_join)


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


def _record_init(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    backend = argument(args, kwargs, 0, "backend")
    current().recorder.event(
        ProcessGroupInit,
        frame,
        backend=None if backend is None else str(backend),
        collective=True,
    )


def _record_destroy(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    recording.recorder.event(ProcessGroupDestroyed, frame)
    failing = sys.exc_info()[0] is not None  # in a `finally` while an error propagates
    if not args and kwargs.get("group") is None and not failing:
        # The last moment at which the full parameters can be gathered.
        recording.final_state.capture()


def _record_join(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    import torch

    recording = current()
    joinables = argument(args, kwargs, 1, "joinables", ())
    modules = [
        recording.objects.module(item) for item in joinables if isinstance(item, torch.nn.Module)
    ]
    recording.recorder.event(JoinUsed, frame, modules=tuple(modules))


def _record_device(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    device = argument(args, kwargs, 0, "device")
    current().recorder.event(DeviceSet, frame, device=str(device))


def _record_mesh(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    recording = current()
    device = argument(args, kwargs, 0, "device_type")
    shape = argument(args, kwargs, 1, "mesh_shape", ())
    entry = recording.recorder.event(
        MeshBuilt,
        frame,
        mesh=recording.objects.new_name("mesh"),
        device_type=str(device),
        shape=tuple(int(size) for size in shape),
        dim_names=tuple(str(name) for name in kwargs.get("mesh_dim_names") or ()),
        collective=True,
    )
    return entry.event.mesh


def _name_mesh(name: str, mesh: Any) -> None:
    current().objects.names.set(mesh, name)


def _record_mesh_object(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    device = argument(args, kwargs, 1, "device_type")
    mesh = argument(args, kwargs, 2, "mesh")
    shape = list(getattr(mesh, "shape", ()))
    recording.recorder.event(
        MeshBuilt,
        frame,
        mesh=recording.objects.new_name("mesh"),
        device_type=str(device),
        shape=tuple(int(size) for size in shape),
        dim_names=tuple(str(name) for name in kwargs.get("mesh_dim_names") or ()),
        collective=True,
    )

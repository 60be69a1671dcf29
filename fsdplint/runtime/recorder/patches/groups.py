"""Process groups, devices and meshes."""

from __future__ import annotations

import functools
import os
import sys
from datetime import timedelta
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching, values
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recorder import of_this_rank
from fsdplint.runtime.recorder.recording import current
from fsdplint.trace import (
    DeviceSet,
    GroupMissed,
    JoinUsed,
    MeshBuilt,
    ProcessGroupDestroyed,
    ProcessGroupInit,
)

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
    for name in ("get_rank", "get_world_size", "get_backend"):
        patching.watch_function(dist, name, functools.partial(_record_query, name))
    patching.watch_function(torch.cuda, "set_device", _record_device)
    for name in ("set_device_index", "set_device_idx"):
        if hasattr(torch, "accelerator"):
            patching.watch_function(torch.accelerator, name, _record_device)
    patching.watch_function(device_mesh, "init_device_mesh", _record_mesh, _name_mesh)
    patching.watch_method(device_mesh.DeviceMesh, "__init__", _record_mesh_object)
    patching.watch_method(join.Join, "__init__", _record_join)


def _shorten_timeout(dist: Any) -> None:
    original = dist.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        seconds = os.environ.get(TIMEOUT_VARIABLE)
        if seconds and len(args) < 3 and isinstance(kwargs.get("timeout", timedelta()), timedelta):
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
        options=values.options(_init_process_group(), args, kwargs),
        collective=True,
    )


def _init_process_group() -> Any:
    import inspect

    import torch.distributed as dist

    return inspect.unwrap(dist.init_process_group)


def _record_query(
    name: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Record a query of the default group while there is none."""
    import torch.distributed as dist

    if not args and kwargs.get("group") is None and not dist.is_initialized():
        current().recorder.event(GroupMissed, frame, api=f"torch.distributed.{name}")


def _record_destroy(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    if not args and kwargs.get("group") is None:
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
    optimizers = [
        recording.objects.optimizer(item)
        for item in joinables
        if isinstance(item, torch.optim.Optimizer)
    ]
    recording.recorder.event(JoinUsed, frame, modules=tuple(modules), optimizers=tuple(optimizers))


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
        overridden=tuple(kwargs.get("backend_override") or ()),
        shapes_differ=of_this_rank(tuple(shape)),
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

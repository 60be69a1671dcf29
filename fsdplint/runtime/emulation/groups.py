"""Replaces NCCL by gloo, and meshes of CUDA devices by meshes of the CPU."""

from __future__ import annotations

from typing import Any

from fsdplint.runtime.emulation.devices import is_cuda
from fsdplint.runtime.emulation.switch import called_by_program, when_emulated
from fsdplint.runtime.recorder import patching
from fsdplint.runtime.recorder.patching import argument


def install() -> None:
    import torch.distributed.device_mesh as device_mesh
    import torch.distributed.distributed_c10d as c10d

    for name, instead in (
        ("init_process_group", _init),
        ("new_group", _new_group),
        ("new_subgroups", _new_group_by_keyword),
        ("new_subgroups_by_enumeration", _new_group_by_keyword),
        ("barrier", _barrier),
        ("is_nccl_available", _is_nccl_available),
        ("get_backend", _get_backend),
        ("all_reduce", _all_reduce),
        ("reduce_scatter_tensor", _reduce_scatter),
    ):
        original = getattr(c10d, name, None)
        if original is not None:
            patching.replace(original, when_emulated(original, instead))
    patching.replace(
        device_mesh.init_device_mesh, when_emulated(device_mesh.init_device_mesh, _init_mesh)
    )
    mesh = device_mesh.DeviceMesh
    mesh.__init__ = when_emulated(mesh.__init__, _mesh)  # type: ignore[method-assign]
    original = mesh.__dict__.get("from_group")
    if isinstance(original, staticmethod):
        mesh.from_group = staticmethod(  # type: ignore[method-assign]
            when_emulated(original.__func__, _from_group)
        )


def _backend(value: Any) -> Any:
    """gloo for NCCL; torch refuses a list that has a backend in the place of a device."""
    pairs = [pair.partition(":") for pair in str(value).lower().split(",")]
    if any(name and device == "nccl" for device, _, name in pairs):
        return value
    return "gloo" if any("nccl" in (device, name) for device, _, name in pairs) else value


def _init(original: Any, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
    if getattr(kwargs.get("device_id"), "index", 0) is not None:  # torch refuses any other
        kwargs.pop("device_id", None)
    kwargs.pop("pg_options", None)
    return original(_backend(backend) or "gloo", *args, **kwargs)


def _new_group(
    original: Any,
    ranks: Any = None,
    timeout: Any = None,
    backend: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    kwargs.pop("device_id", None)
    kwargs.pop("pg_options", None)
    return original(ranks, timeout, _backend(backend), **kwargs)


def _new_group_by_keyword(original: Any, *args: Any, **kwargs: Any) -> Any:
    if "backend" in kwargs:
        kwargs["backend"] = _backend(kwargs["backend"])
    kwargs.pop("pg_options", None)
    return original(*args, **kwargs)


def _barrier(original: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("device_ids", None)
    return original(*args, **kwargs)


def _is_nccl_available(original: Any) -> bool:
    return called_by_program() or bool(original())


def _get_backend(original: Any, *args: Any, **kwargs: Any) -> Any:
    found = original(*args, **kwargs)
    return "nccl" if called_by_program() and found == "gloo" else found


def _all_reduce(original: Any, tensor: Any, op: Any = None, *args: Any, **kwargs: Any) -> Any:
    return _reduce(original, (tensor,), op, args, kwargs)


def _reduce_scatter(
    original: Any, output: Any, input: Any, op: Any = None, *args: Any, **kwargs: Any
) -> Any:
    return _reduce(original, (output, input), op, args, kwargs)


def _reduce(
    original: Any, tensors: tuple[Any, ...], op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a reduction into the first tensor. gloo cannot average: sum, then divide."""
    import torch.distributed as dist

    if op is None or op != dist.ReduceOp.AVG:
        return original(*tensors, *(() if op is None else (op,)), *args, **kwargs)
    work = original(*tensors, dist.ReduceOp.SUM, *args, **kwargs)
    group = argument(args, kwargs, 0, "group")
    if work is not None:
        work.wait()
    tensors[0].div_(dist.get_world_size(group))
    return work


def _init_mesh(original: Any, device_type: str, *args: Any, **kwargs: Any) -> Any:
    return original("cpu" if is_cuda(device_type) else device_type, *args, **kwargs)


def _mesh(original: Any, self: Any, device_type: str, *args: Any, **kwargs: Any) -> Any:
    return original(self, "cpu" if is_cuda(device_type) else device_type, *args, **kwargs)


def _from_group(original: Any, group: Any, device_type: str, *args: Any, **kwargs: Any) -> Any:
    return original(group, "cpu" if is_cuda(device_type) else device_type, *args, **kwargs)

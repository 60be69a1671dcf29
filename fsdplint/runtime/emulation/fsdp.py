"""FSDP on the CPU, which FSDP1 supports only in part.

On the CPU, FSDP1 needs a `device_id`, refuses `sync_module_states` and parameter offload, and fails
to offload state dicts to the CPU. Each is replaced by an equivalent on the CPU with equal results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Iterator
from typing import Any

from fsdplint.runtime.emulation.switch import when_emulated

_in_constructor = [False]


def install() -> None:
    import torch.distributed.fsdp as torch_fsdp
    from torch.distributed.fsdp import FullyShardedDataParallel

    from fsdplint.runtime.recorder import patching

    cls: Any = FullyShardedDataParallel
    cls.__init__ = when_emulated(cls.__init__, _construct)
    for name in ("state_dict_type", "set_state_dict_type"):
        original = cls.__dict__[name].__func__
        setattr(cls, name, staticmethod(when_emulated(original, _without_offload)))
    original = cls.__dict__["summon_full_params"].__func__
    cls.summon_full_params = staticmethod(when_emulated(original, _summon))
    patching.replace(torch_fsdp.fully_shard, when_emulated(torch_fsdp.fully_shard, _fully_shard))
    dispatcher: Any = importlib.import_module("torch.distributed.tensor._dispatch").OpDispatcher
    for name, instead in (  # each torch has one of them
        ("dispatch", _dispatch),
        ("_dispatch_get_local_results_slow_path", _local_results),
    ):
        if hasattr(dispatcher, name):
            setattr(dispatcher, name, when_emulated(getattr(dispatcher, name), instead))


def _construct(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    import inspect

    if _in_constructor[0]:
        # A child that the root's policy wraps gets the adapted arguments of the root.
        return original(self, *args, **kwargs)
    bound = inspect.signature(original).bind(self, *args, **kwargs)
    values = bound.arguments
    extra = values.get("kwargs", {})
    _adapt_arguments(values, self)
    _adapt_arguments(extra, self)
    with _constructor():
        original(
            *bound.args,
            **bound.kwargs,
            **(
                {"device_id": _cpu()}
                if "device_id" not in values and "device_id" not in extra
                else {}
            ),
        )


@contextlib.contextmanager
def _constructor() -> Iterator[None]:
    _in_constructor[0] = True
    try:
        yield
    finally:
        _in_constructor[0] = False


def _cpu() -> Any:
    import torch

    return torch.device("cpu")


def _adapt_arguments(values: dict[str, Any], wrapper: Any) -> None:
    if "device_id" in values:
        values["device_id"] = _cpu()
    offload = values.get("cpu_offload")
    if getattr(offload, "offload_params", False):
        values["cpu_offload"] = None
    if values.get("sync_module_states"):
        values["sync_module_states"] = False
        _broadcast(
            values["module"],
            values.get("param_init_fn"),
            _groups(values),
            _ignored_parameters(values),
        )


def _ignored_parameters(values: dict[str, Any]) -> set[int]:
    """The ids of the parameters that FSDP1 ignores."""
    found = []
    for name in ("ignored_states", "ignored_modules"):
        if values.get(name) is not None:
            values[name] = list(values[name])  # a generator can be read only once
            found += values[name]
    return {
        id(parameter)
        for one in found
        for parameter in (one.parameters() if hasattr(one, "parameters") else [one])
    }


def _groups(values: dict[str, Any]) -> list[Any]:
    """The groups over which sync_module_states broadcasts, in order; None is the default group."""
    group, mesh = values.get("process_group"), values.get("device_mesh")
    if isinstance(group, tuple):
        return [group[1], group[0]]
    if mesh is not None:
        return [mesh.get_group(dim) for dim in range(mesh.ndim)]
    return [group]


def _broadcast(module: Any, initialise: Any, groups: list[Any], ignored: set[int]) -> None:
    """Broadcast parameters and buffers from the first rank, as sync_module_states does."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel

    broadcast_parts = {
        id(part)
        for wrapper in module.modules()
        if isinstance(wrapper, FullyShardedDataParallel)
        for part in wrapper.modules()
    }
    parts = [part for part in module.modules() if id(part) not in broadcast_parts]
    for part in parts:
        _materialise(part, initialise)
    with torch.no_grad():
        for part in parts:
            for tensor in (*part._parameters.values(), *part._buffers.values()):
                if tensor is not None and id(tensor) not in ignored:
                    full = tensor.detach().contiguous()
                    for group in groups:
                        first = 0 if group is None else dist.get_process_group_ranks(group)[0]
                        dist.broadcast(full, first, group=group)
                    tensor.detach().copy_(full)


def _materialise(module: Any, initialise: Any) -> None:
    own = [*module._parameters.values(), *module._buffers.values()]
    if not any(tensor is not None and tensor.is_meta for tensor in own):
        return
    if initialise is not None:
        initialise(module)
        return
    module.to_empty(device="cpu", recurse=False)
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()


def _without_offload(original: Any, *args: Any, **kwargs: Any) -> Any:
    return original(
        *(_on_device(value) for value in args),
        **{name: _on_device(value) for name, value in kwargs.items()},
    )


def _on_device(config: Any) -> Any:
    """A state dict configuration without offload: the tensors are on the CPU already."""
    if dataclasses.is_dataclass(config) and getattr(config, "offload_to_cpu", False):
        return dataclasses.replace(config, offload_to_cpu=False)  # type: ignore[type-var]
    return config


def _summon(original: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs["offload_to_cpu"] = False
    return original(*args[:4], **kwargs)


def _fully_shard(original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy

    if isinstance(kwargs.get("offload_policy"), CPUOffloadPolicy):
        kwargs["offload_policy"] = OffloadPolicy()
    return original(module, *args, **kwargs)


def _dispatch(original: Any, self: Any, op_call: Any, args: Any, kwargs: Any) -> Any:
    if _fill_random_shard(op_call, args, kwargs):
        return args[0]
    return original(self, op_call, args, kwargs)


def _local_results(original: Any, self: Any, op_call: Any, args: Any, op_info: Any) -> Any:
    if _fill_random_shard(op_call, args, op_info.local_kwargs):
        return args[0]._local_tensor
    return original(self, op_call, args, op_info)


def _fill_random_shard(op_call: Any, args: Any, kwargs: Any) -> bool:
    """Fill a sharded tensor with its part of the full tensor's random numbers, as on CUDA devices.

    The CPU's generator ignores sharding: every rank would fill its part with the same numbers.
    """
    import torch
    from torch.distributed.tensor import DTensor

    aten = torch.ops.aten
    if op_call not in (aten.normal_.default, aten.uniform_.default, aten.bernoulli_.float):
        return False
    tensor = args[0]
    if not isinstance(tensor, DTensor) or tensor.is_meta:
        return False
    local = tensor._local_tensor
    full = torch.empty(tensor.shape, dtype=local.dtype, device=local.device)
    op_call(full, *args[1:], **kwargs)
    local.copy_(full[_own_part(tensor)])
    return True


def _own_part(tensor: Any) -> tuple[slice, ...]:
    """The slices of the full tensor that this rank holds."""
    utils: Any = importlib.import_module("torch.distributed.tensor._utils")
    shape, offset = utils.compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    return tuple(slice(start, start + n) for start, n in zip(offset, shape, strict=True))

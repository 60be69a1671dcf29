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
    # `sync_module_states` broadcasts on the CPU as well; only this check refuses it.
    utilities: Any = importlib.import_module("torch.distributed.fsdp._init_utils")
    check = utilities._check_module_states_for_sync_module_states
    utilities._check_module_states_for_sync_module_states = when_emulated(check, _accept_states)
    dispatcher: Any = importlib.import_module("torch.distributed.tensor._dispatch").OpDispatcher
    for name, instead in (  # each torch has one of them
        ("dispatch", _dispatch),
        ("_dispatch_get_local_results_slow_path", _local_results),
    ):
        if hasattr(dispatcher, name):
            setattr(dispatcher, name, when_emulated(getattr(dispatcher, name), instead))


def _accept_states(original: Any, states: Any) -> None:
    """Accept states on the CPU, which stands for the device."""


def _construct(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    import inspect

    if _in_constructor[0]:
        # A child that the root's policy wraps gets the adapted arguments of the root.
        return original(self, *args, **kwargs)
    bound = inspect.signature(original).bind(self, *args, **kwargs)
    values = bound.arguments
    extra = values.get("kwargs", {})
    _adapt_arguments(values)
    _adapt_arguments(extra)
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


def _adapt_arguments(values: dict[str, Any]) -> None:
    if "device_id" in values:
        values["device_id"] = _cpu()
    offload = values.get("cpu_offload")
    if getattr(offload, "offload_params", False):
        values["cpu_offload"] = None


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

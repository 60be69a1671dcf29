"""Replaces the sharding of a program by plain data parallelism, as a reference.

Every rank holds all parameters, and gradients are averaged: this trains what the program intends,
without errors of its sharding. FSDP1 does it with NO_SHARD. FSDP2 does it on a mesh that shards
parameters over a dimension with a single rank. FSDP2 still creates new parameters, so an existing
optimizer gets the new ones: without sharding, it would hold the right parameters too.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from typing import Any

from fsdplint.runtime.recorder import patching

_optimizers: weakref.WeakSet[Any] = weakref.WeakSet()


def install() -> None:
    """Replace the sharding of this process, before the program imports it."""
    import torch
    import torch.distributed.fsdp as fsdp

    wrapper: Any = fsdp.FullyShardedDataParallel
    wrapper.__init__ = _replicating_init(wrapper.__init__)
    patching.replace(fsdp.fully_shard, _fully_shard(fsdp.fully_shard))
    patching.apply_replacements()
    optimizer: Any = torch.optim.Optimizer
    optimizer.__init__ = _registering_init(optimizer.__init__)


def _replicating_init(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(*args: Any, **kwargs: Any) -> None:
        from torch.distributed.fsdp import ShardingStrategy

        arguments = signature.bind(*args, **kwargs).arguments
        arguments.pop("process_group", None)
        arguments.pop("device_mesh", None)
        # With the original parameters, an existing optimizer keeps the parameters of the model.
        arguments.update(sharding_strategy=ShardingStrategy.NO_SHARD, use_orig_params=True)
        original(**arguments)

    return __init__


def _fully_shard(original: Any) -> Any:
    @functools.wraps(original)
    def fully_shard(module: Any, *args: Any, **kwargs: Any) -> Any:
        modules = module if isinstance(module, (list, tuple)) else [module]
        before = [dict(one.named_parameters()) for one in modules]
        kwargs["mesh"] = _mesh(kwargs.get("mesh"))
        result = original(module, *args, **kwargs)
        new = {
            id(parameter): one.get_parameter(name)
            for one, named in zip(modules, before, strict=True)
            for name, parameter in named.items()
        }
        for optimizer in list(_optimizers):
            for group in optimizer.param_groups:
                group["params"] = [new.get(id(p), p) for p in group["params"]]
        return result

    return fully_shard


@functools.cache
def _replicate_mesh(device: str) -> Any:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    names = ("fsdplint_replicate", "fsdplint_shard")
    return init_device_mesh(device, (dist.get_world_size(), 1), mesh_dim_names=names)


def _mesh(arguments: Any) -> Any:
    import torch
    import torch.distributed as dist

    if arguments is not None:
        return _replicate_mesh(arguments.device_type)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return _replicate_mesh("cuda" if torch.cuda.is_available() else "cpu")


def _registering_init(original: Any) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _optimizers.add(self)

    return __init__

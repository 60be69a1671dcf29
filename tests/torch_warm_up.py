"""What a process that forks itself for each rank of each program does once, so that no rank does it again."""

from __future__ import annotations

import gc
import warnings
import weakref


def warm_up() -> None:
    """Fill the caches of torch, and leave the objects of this process to it.

    Half of what a small program took on two ranks was work of this kind: each rank ran the finalizers
    of torch's libraries at its end, copied the pages that the garbage collector marks, and dispatched
    each operation of a DTensor for the first time.
    """
    import torch

    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        _fill_caches()
    for finalizer in list(weakref.finalize._registry):
        finalizer.atexit = False  # it is for the end of this process, not for that of a rank
    gc.collect()
    gc.freeze()


def _fill_caches() -> None:
    """Train with FSDP1 and FSDP2 on a group that sends nothing, and take the states.

    DTensor keeps what it computes for a mesh, and so for a rank. The mesh of no program has four ranks.
    """
    import functools

    import torch
    import torch._dynamo
    import torch.distributed as dist
    import torch.distributed.checkpoint.state_dict as states
    import torch.distributed.fsdp.sharded_grad_scaler
    import torch.distributed.fsdp.wrap
    import torch.optim.swa_utils
    from torch import nn
    from torch.distributed.algorithms._checkpoint import checkpoint_wrapper  # noqa: F401
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    first = functools.partial(FullyShardedDataParallel, device_id=torch.device("cpu"))
    for wrap in (first, fully_shard):
        model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))
        for index in (0, 1, 2):
            model[index] = wrap(model[index])
        model = wrap(model)
        for optimizer in (
            torch.optim.AdamW(model.parameters()),
            torch.optim.SGD(model.parameters(), momentum=0.9),
        ):
            for _ in range(2):
                model(torch.randn(2, 8)).sum().backward()
                if wrap is fully_shard:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                else:
                    model.clip_grad_norm_(1.0)
                optimizer.step()
                optimizer.zero_grad()
        options = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
        if wrap is fully_shard:
            states.get_state_dict(model, optimizer, options=options)
    dist.destroy_process_group()

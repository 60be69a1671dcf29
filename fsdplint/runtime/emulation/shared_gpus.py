"""Lets several ranks share a GPU, so that a program with NCCL runs on fewer GPUs than ranks.

NCCL refuses two ranks of one machine on the same GPU ("Duplicate GPU detected"). It tells machines
apart by a hash of their names, which `NCCL_HOSTID` replaces. With a name of its own, each rank
looks like a machine with one GPU, and the ranks exchange their data through sockets.
"""

from __future__ import annotations

import os


def share_gpus(local_ranks: int) -> bool:
    """Give this rank one of the GPUs if there are fewer of them than ranks, before CUDA starts.

    The local rank becomes the number of the GPU, since programs select their GPU by it.

    Args:
        local_ranks: the ranks of this machine.

    Returns:
        Whether ranks share GPUs.
    """
    import torch

    count = torch.cuda.device_count()
    if not 0 < count < local_ranks:
        return False
    rank = int(os.environ.get("RANK", "0"))
    os.environ["LOCAL_RANK"] = str(int(os.environ.get("LOCAL_RANK", "0")) % count)
    os.environ["NCCL_HOSTID"] = f"fsdplint-{rank}"
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    return True

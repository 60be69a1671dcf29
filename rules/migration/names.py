"""FSDP1's names: which references are to it, and what each is called."""

from __future__ import annotations

# What `torch.distributed.fsdp` offers for FSDP2; everything else in that package is FSDP1's.
FSDP2 = frozenset(
    {
        "fully_shard",
        "FSDPModule",
        "UnshardHandle",
        "register_fsdp_forward_method",
        "MixedPrecisionPolicy",
        "OffloadPolicy",
        "CPUOffloadPolicy",
        "share_comm_ctx",
        "DataParallelMeshDims",
        "GradientReductionHandle",
    }
)
# Submodules that a path may go through on its way to a name.
SUBMODULES = frozenset(
    {
        "api",
        "wrap",
        "fully_sharded_data_parallel",
        "sharded_grad_scaler",
        "_fully_shard",
        "_fsdp_api",
        "_fsdp_state",
    }
)
PREFIX = "torch.distributed.fsdp"
FSDP = "FullyShardedDataParallel"
STRATEGIES = (
    "FULL_SHARD",
    "SHARD_GRAD_OP",
    "NO_SHARD",
    "HYBRID_SHARD",
    "_HYBRID_SHARD_ZERO2",
)


def fsdp1_name(full: str) -> str | None:
    """The FSDP1 name in a canonical dotted name: "ShardingStrategy.FULL_SHARD", "wrap", ...

    None for names of FSDP2 and of anything that is not in torch's FSDP package.
    """
    if not full.startswith(PREFIX + "."):
        return None
    parts = full[len(PREFIX) + 1 :].split(".")
    while len(parts) > 1 and parts[0] in SUBMODULES:
        parts = parts[1:]
    if not parts or parts[0] in FSDP2:
        return None
    return ".".join(parts)

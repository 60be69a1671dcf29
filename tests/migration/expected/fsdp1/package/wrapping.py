"""How the model is wrapped: policy, precision, sharding."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    MixedPrecisionPolicy,
    fully_shard,
)

from model import DecoderLayer


def get_mixed_precision(cfg):
    """The policy for cfg.precision, None for full precision."""
    if cfg.precision == "bf16":
        return MixedPrecisionPolicy(
            param_dtype=torch.bfloat16,
            reduce_dtype=torch.float32,
        )
    return None


def sharding_arguments(strategy):
    """The arguments of fully_shard for the name of one of FSDP1's sharding strategies."""
    if strategy == "NO_SHARD":
        shape = (torch.distributed.get_world_size(), 1)
    elif strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        per_node = torch.cuda.device_count()
        shape = (torch.distributed.get_world_size() // per_node, per_node)
    else:
        return {"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {}
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = init_device_mesh(device_type, shape, mesh_dim_names=("replicate", "shard"))
    arguments = {"mesh": mesh}
    if strategy == "_HYBRID_SHARD_ZERO2":
        arguments["reshard_after_forward"] = False
    return arguments


def wrap_model(model, cfg, device):
    fsdp_kwargs = {
        **sharding_arguments(cfg.sharding),
        "mp_policy": get_mixed_precision(cfg) or MixedPrecisionPolicy(),
    }
    for module in reversed(list(model.modules())):
        if isinstance(module, DecoderLayer):
            fully_shard(module, **fsdp_kwargs)
    return fully_shard(model, **fsdp_kwargs)

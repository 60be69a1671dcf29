"""How the model is wrapped: policy, precision, sharding."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

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
    """The arguments of fully_shard for a sharding strategy of FSDP1, given by name."""
    world_size = dist.get_world_size()
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    names = ("replicate", "shard")
    if strategy == "NO_SHARD":
        return {"mesh": init_device_mesh(device_type, (world_size, 1), mesh_dim_names=names)}
    if strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        per_node = torch.cuda.device_count()
        mesh = init_device_mesh(device_type, (world_size // per_node, per_node), mesh_dim_names=names)
        return {"mesh": mesh, "reshard_after_forward": None if strategy == "HYBRID_SHARD" else False}
    return {"reshard_after_forward": None if strategy == "FULL_SHARD" else False}


def wrap_model(model, cfg, device):
    fsdp_kwargs = {
        **sharding_arguments(cfg.sharding),
        "mp_policy": get_mixed_precision(cfg) or MixedPrecisionPolicy(),
    }
    for module in reversed(list(model.modules())):
        if isinstance(module, DecoderLayer):
            fully_shard(module, **fsdp_kwargs)
    return fully_shard(model, **fsdp_kwargs)

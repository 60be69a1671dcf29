"""Presets of the launcher: strategy, precision and offloading by name.

torchrun --nproc-per-node 2 hybrid_presets.py --preset hybrid --out checkpoints
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

STRATEGY = {
    "fsdp": "FULL_SHARD",
    "grad": "SHARD_GRAD_OP",
    "hybrid": "HYBRID_SHARD",
    "hybrid_zero2": "_HYBRID_SHARD_ZERO2",
    "ddp": "NO_SHARD",
}
PRECISION = {
    "bf16": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
    "mixed": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    "fp32": None,
}


class Attention(nn.Module):
    def __init__(self, dim, max_len=16):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("bias", torch.linspace(0, 1, max_len), persistent=False)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        k = k + self.bias[: x.shape[1], None].to(k.dtype)
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = Attention(dim)

    def forward(self, x):
        return x + self.attention(self.norm(x))


class LM(nn.Module):
    def __init__(self, vocab=16, dim=16, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.Sequential(*[Block(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="hybrid", choices=list(STRATEGY))
    parser.add_argument("--precision", default="fp32", choices=list(PRECISION))
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--no-prefetch", action="store_true")
    parser.add_argument("--out", default="checkpoints")
    return parser.parse_args()


def sharding_arguments(strategy):
    """The arguments of fully_shard for the name of one of FSDP1's sharding strategies."""
    if strategy == "NO_SHARD":
        shape = (dist.get_world_size(), 1)
    elif strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        per_node = torch.cuda.device_count()
        shape = (dist.get_world_size() // per_node, per_node)
    else:
        return {"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {}
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    arguments = {"mesh": mesh}
    if strategy == "_HYBRID_SHARD_ZERO2":
        arguments["reshard_after_forward"] = False
    return arguments


def wrap(model, args):
    mp_policy = PRECISION[args.precision] or MixedPrecisionPolicy()
    fsdp_kwargs = {
        **sharding_arguments(STRATEGY[args.preset]),
        "mp_policy": mp_policy,
        "offload_policy": CPUOffloadPolicy() if args.offload else OffloadPolicy(),
    }
    for module in reversed(list(model.modules())):
        if isinstance(module, Block):
            fully_shard(module, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    if mp_policy.reduce_dtype is not None:
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(mp_policy.reduce_dtype)
    return model


def main():
    args = get_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("cpu:gloo,cuda:nccl")
    torch.manual_seed(0)
    model = wrap(LM(), args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rng = torch.Generator().manual_seed(1 + dist.get_rank())
    for step in range(3):
        start = torch.randint(16, (4, 1), generator=rng)
        tokens = ((start + torch.arange(9)) % 16).cuda()
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.6f}")
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if dist.get_rank() == 0:
        os.makedirs(args.out, exist_ok=True)
        torch.save(state, os.path.join(args.out, "lm.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

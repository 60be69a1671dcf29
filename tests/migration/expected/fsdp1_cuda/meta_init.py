"""A model that is too large for one rank: built on the meta device, filled part by part.

torchrun --nproc-per-node 2 meta_init.py --out checkpoints
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import (
    FSDPModule,
    fully_shard,
)


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def reset_parameters(self):
        nn.init.ones_(self.weight)

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6)


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = RMSNorm(dim)
        self.up = nn.Linear(dim, 2 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, dim=16, depth=2):
        super().__init__()
        self.embed = nn.Embedding(12, dim)
        self.layers = nn.ModuleList([Layer(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, 12, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def constant_init(module):
    """The same small values wherever it runs."""
    module.to_empty(device=torch.device("cuda", torch.cuda.current_device()), recurse=False)
    for param in module.parameters(recurse=False):
        values = torch.linspace(-0.2, 0.2, param.numel(), device=param.device)
        with torch.no_grad():
            param.copy_(torch.sin(37 * values).mul(0.3).view_as(param))


def initialize(module, param_init_fn):
    """Give what is on the meta device memory and values, just before it is sharded."""
    parts = [module]
    for part in parts:
        for child in part.children():
            if child not in parts and not isinstance(child, FSDPModule):
                parts.append(child)
    if param_init_fn is not None and any(
        tensor.is_meta
        for part in parts
        for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False))
    ):
        for part in parts:
            param_init_fn(part)


def initialize_and_shard(module, test, param_init_fn, **kwargs):
    """Initialize and shard the submodules for which test(module) holds, children first."""
    for child in module.children():
        if isinstance(child, FSDPModule):
            continue
        initialize_and_shard(child, test, param_init_fn, **kwargs)
        if test(child):
            initialize(child, param_init_fn)
            fully_shard(child, **kwargs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="checkpoints")
    args = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()

    with torch.device("meta"):
        model = Net()
    initialize_and_shard(model, lambda module: isinstance(module, Layer), constant_init)
    initialize(model, constant_init)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rng = torch.Generator().manual_seed(rank)
    for step in range(3):
        tokens = torch.randint(12, (4, 6), generator=rng).cuda()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}")

    policy = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=policy)
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)
        torch.save(state, os.path.join(args.out, "net.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

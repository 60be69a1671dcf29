"""Wraps a student, a teacher and a judge with arguments that helpers fill, return and hand on."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.linear(self.norm(x)))


class Tower(nn.Module):
    def __init__(self, depth, width=24):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.out = nn.Linear(width, 6)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


# What all calls of FSDP have in common.
device_id = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")


def strategy_arguments(args):
    sharding_strategy = None
    if args.strategy == "grad_op":
        sharding_strategy = "SHARD_GRAD_OP"
    elif args.strategy == "no_shard":
        sharding_strategy = "NO_SHARD"
    return sharding_strategy


def sharding_arguments(strategy):
    """The arguments of fully_shard for the name of one of FSDP1's sharding strategies."""
    if strategy != "NO_SHARD":
        return {"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {}
    shape = (dist.get_world_size(), 1)
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = init_device_mesh(device_type, shape, mesh_dim_names=("replicate", "shard"))
    return {"mesh": mesh}


def shard(model, *, sharding_strategy, auto_wrap_policy, forward_prefetch, limit_all_gathers):
    fsdp_kwargs = sharding_arguments(sharding_strategy)
    for module in reversed(list(model.modules())):
        if auto_wrap_policy(module):
            fully_shard(module, **fsdp_kwargs)
    return fully_shard(model, **fsdp_kwargs)


def shard_by_hand(model, *, device_id, use_orig_params):
    for number, layer in enumerate(model.layers):
        model.layers[number] = fully_shard(layer)
    return fully_shard(model)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument("--strategy", default="full")
    args = parser.parse_args()

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()

    torch.manual_seed(3)
    sharding_strategy = strategy_arguments(args)
    forward_prefetch = False
    if args.strategy == "full":
        forward_prefetch = True
    student = shard(Tower(3), auto_wrap_policy=lambda module: isinstance(module, Layer), forward_prefetch=forward_prefetch, sharding_strategy=sharding_strategy, limit_all_gathers=True)
    fsdp_device_id = device_id
    teacher = shard_by_hand(Tower(2), use_orig_params=True, device_id=fsdp_device_id)
    judge = fully_shard(Tower(1))
    optimizer = torch.optim.AdamW(student.parameters(), lr=2e-3)

    device = device_id
    generator = torch.Generator().manual_seed(50 + rank)
    for step in range(6):
        x = torch.randn(8, 24, generator=generator).to(device)
        with torch.no_grad():
            target = teacher(x) + judge(x)
        loss = F.mse_loss(student(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} loss {loss.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

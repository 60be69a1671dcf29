"""Hybrid sharding over process groups made by hand: shards inside a node, replicas across nodes.

torchrun --nproc-per-node 2 hybrid_groups.py --out checkpoints [--zero2]
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.token_mlp = nn.Linear(tokens, tokens)
        self.channel_mlp = nn.Linear(dim, dim)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.token_mlp(y.transpose(1, 2)).transpose(1, 2)
        return x + torch.tanh(self.channel_mlp(x))


class Mixer(nn.Module):
    def __init__(self, tokens=6, dim=16, depth=2, classes=5):
        super().__init__()
        self.embed = nn.Linear(4, dim)
        self.blocks = nn.Sequential(*[MixerBlock(tokens, dim) for _ in range(depth)])
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)).mean(dim=1))


def make_groups(ranks_per_node):
    """The group of this rank's node and that of its counterparts on the other nodes."""
    world, rank = dist.get_world_size(), dist.get_rank()
    shard_group = replicate_group = None
    for first in range(0, world, ranks_per_node):
        members = list(range(first, first + ranks_per_node))
        group = dist.new_group(members)
        if rank in members:
            shard_group = group
    for local in range(ranks_per_node):
        members = list(range(local, world, ranks_per_node))
        group = dist.new_group(members)
        if rank in members:
            replicate_group = group
    return shard_group, replicate_group


def mesh_of_groups(group):
    """The mesh for a process group to shard over, or for a pair of them: one to shard over and
    one to replicate over.
    """
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    if not isinstance(group, tuple):
        return DeviceMesh.from_group(group, device_type)
    shard, replicate = group
    rows = [None] * replicate.size()
    dist.all_gather_object(rows, dist.get_process_group_ranks(shard), group=replicate)
    return DeviceMesh.from_group(
        [replicate, shard], device_type, rows, mesh_dim_names=("replicate", "shard")
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument("--zero2", action="store_true", help="keep the parameters after the forward")
    args = parser.parse_args()

    local_rank = int(os.environ["LOCAL_RANK"])
    use_cuda = torch.cuda.is_available()
    if use_cuda:
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if use_cuda else "gloo")
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")

    shard_group, replicate_group = make_groups(int(os.environ["LOCAL_WORLD_SIZE"]))
    strategy = "_HYBRID_SHARD_ZERO2" if args.zero2 else "HYBRID_SHARD"

    torch.manual_seed(11)
    model = Mixer()
    fsdp_kwargs = {
        "mesh": mesh_of_groups((shard_group, replicate_group)),
    }
    if strategy in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"):
        fsdp_kwargs["reshard_after_forward"] = False
    for module in reversed(list(model.modules())):
        if isinstance(module, MixerBlock):
            fully_shard(module, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(50 + dist.get_rank())
    for step in range(3):
        x = torch.randn(8, 6, 4, generator=generator).to(device)
        y = torch.randint(5, (8,), generator=generator).to(device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.6f}")

    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))  # whole tensors, on every rank
    if dist.get_rank() == 0:
        os.makedirs(args.out, exist_ok=True)
        torch.save(state, os.path.join(args.out, "mixer.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

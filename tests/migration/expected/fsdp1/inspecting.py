"""Looks into the wrapped model: its units, its inner module, and names with the wrapper's prefix.

torchrun --nproc-per-node 2 inspecting.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FSDPModule, fully_shard


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.linear = nn.Linear(d, d)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x)))


class Net(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.name = "small"
        self.blocks = nn.ModuleList([Block(d) for _ in range(2)])
        self.out = nn.Linear(d, 1)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x) * self.scale


def decay_groups(model: FSDPModule):
    """Norms and biases are not decayed."""
    decay, rest = [], []
    for name, param in model.named_parameters():
        name = name.replace("_fsdp_wrapped_module.", "")
        if "norm" in name or name.endswith("bias"):
            rest.append(param)
        else:
            decay.append(param)
    return [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]


def main():
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")

    torch.manual_seed(10)
    model = Net()
    for submodule in reversed(list(model.modules())):
        if isinstance(submodule, Block):
            fully_shard(submodule)
    fully_shard(model)
    assert isinstance(model, FSDPModule)
    if dist.get_rank() == 0:
        print(model.name, "has", len([m for m in model.modules() if isinstance(m, FSDPModule)]), "units")
        print(type(model).__name__.replace("FSDP", ""))
        print(sorted(name for name, _ in model.named_buffers()))

    optimizer = torch.optim.AdamW(decay_groups(model), lr=1e-2)
    rng = torch.Generator().manual_seed(80 + dist.get_rank())
    for step in range(3):
        x = torch.randn(8, 12, generator=rng).to(device)
        loss = (model(x) - x[:, :1]).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"{step}: {loss.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

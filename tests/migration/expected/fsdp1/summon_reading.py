"""Watches the weights while it trains: norms of whole matrices, read under summon_full_params.

torchrun --nproc-per-node 2 summon_reading.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FSDPModule, fully_shard


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up = nn.Linear(d, 2 * d, bias=False)
        self.down = nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.blocks = nn.ModuleList([Block(d), Block(d)])
        self.head = nn.Linear(d, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def report(model, step):
    """The spectral norm of every matrix, which needs all of its rows."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.unshard()
    for name, param in model.named_parameters():
        if param.dim() == 2:
            norm = torch.linalg.matrix_norm(param.detach(), ord=2)
            if dist.get_rank() == 0:
                print(f"step {step} {name} {norm.item():.5f}")
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def main():
    device = torch.device("cpu")
    backend = "gloo"
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        backend = "nccl"
    dist.init_process_group(backend)

    torch.manual_seed(12)
    model = Net()
    for module in reversed(list(model.modules())):
        if isinstance(module, Block):
            fully_shard(module)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    rng = torch.Generator().manual_seed(90 + dist.get_rank())
    for step in range(3):
        x = torch.randn(8, 12, generator=rng).to(device)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.6f}")
        report(model, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Initialises through FSDP.apply.

torchrun --nproc-per-node 2 apply.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x):
        return x + torch.relu(self.linear(x))


def init(module):
    if isinstance(module, nn.Linear):
        nn.init.constant_(module.bias, 0.1)


def main():
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")

    torch.manual_seed(15)
    net = nn.Sequential(nn.Linear(4, 12), Block(12), nn.Linear(12, 1))
    for module in reversed(list(net.modules())):
        if isinstance(module, Block):
            fully_shard(module)
    model = fully_shard(net)
    model.apply(init)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rng = torch.Generator().manual_seed(dist.get_rank())
    for step in range(3):
        x = torch.randn(8, 4, generator=rng).to(device)
        loss = (model(x) - x.sum(dim=1, keepdim=True)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"{step} {loss.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

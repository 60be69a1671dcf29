"""Wraps layer by layer with a partial of the FSDP class.

torchrun --nproc-per-node 2 partial_by_hand.py
"""
import functools
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Residual(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


def main():
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")

    fsdp = functools.partial(fully_shard, reshard_after_forward=False)
    torch.manual_seed(18)
    first, second = Residual(12), Residual(12)
    head = nn.Linear(12, 3)
    first = fsdp(first)
    second = fsdp(second)
    model = fsdp(nn.Sequential(first, second, head))

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    rng = torch.Generator().manual_seed(dist.get_rank())
    for step in range(3):
        x = torch.randn(8, 12, generator=rng).to(device)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"{step} {loss.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

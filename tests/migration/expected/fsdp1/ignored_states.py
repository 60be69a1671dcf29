"""Shared scale factors that stay whole on every rank (ignored_states), reduced by the program itself.

torchrun --nproc-per-node 2 ignored_states.py
"""
import os
from typing import List

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Scaled(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d, d)
        self.temperature = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.temperature


class Net(nn.Module):
    def __init__(self, d: int = 8) -> None:
        super().__init__()
        self.one = Scaled(d)
        self.two = Scaled(d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.tanh(self.one(x)))


def temperatures(model: nn.Module) -> List[nn.Parameter]:
    return [p for name, p in model.named_parameters() if name.endswith("temperature")]


def main() -> None:
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")

    torch.manual_seed(14)
    net = Net().to(device)
    whole = temperatures(net)
    for parameter in whole:
        parameter.data = parameter.data.to(device)
    model = fully_shard(net, ignored_params=set(whole))
    weights = [p for p in model.parameters() if not any(p is other for other in whole)]
    optimizer = torch.optim.SGD(weights, lr=0.1, foreach=False)
    scales = torch.optim.SGD(whole, lr=0.01, foreach=False)

    rng = torch.Generator().manual_seed(dist.get_rank())
    for step in range(3):
        x = torch.randn(8, 8, generator=rng).to(device)
        loss = (model(x) - x.flip(1)).square().mean()
        loss.backward()
        for p in whole:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
        scales.step()
        optimizer.zero_grad()
        scales.zero_grad()
        if dist.get_rank() == 0:
            print("step", step, "loss", round(loss.item(), 7))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A policy function for CustomPolicy: experts are wrapped one by one and keep their parameters.

torchrun --nproc-per-node 2 unit_arguments.py
"""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return self.net(x)


class Mixture(nn.Module):
    """All experts run on all tokens; the router weighs them."""

    def __init__(self, dim, n_experts):
        super().__init__()
        self.router = nn.Linear(dim, n_experts)
        self.experts = nn.ModuleList([Expert(dim) for _ in range(n_experts)])

    def forward(self, x):
        weights = self.router(x).softmax(dim=-1)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return x + (outputs * weights.unsqueeze(-2)).sum(dim=-1)


class Model(nn.Module):
    def __init__(self, dim=12, depth=2):
        super().__init__()
        self.inp = nn.Linear(3, dim)
        self.layers = nn.ModuleList([Mixture(dim, 2) for _ in range(depth)])
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def wrap_or_not(module):
    if isinstance(module, Expert):
        return {"reshard_after_forward": False}
    return {} if isinstance(module, Mixture) else None


def main():
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")

    torch.manual_seed(1)
    model = Model()
    for module in reversed(list(model.modules())[1:]):
        arguments = wrap_or_not(module)
        if arguments is not None:
            fully_shard(module, **arguments)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    g = torch.Generator().manual_seed(dist.get_rank())
    for step in range(3):
        x = torch.rand(16, 3, generator=g)
        y = (x.prod(dim=1, keepdim=True) - x.sum(dim=1, keepdim=True)).to(device)
        loss = nn.functional.smooth_l1_loss(model(x.to(device)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"{step} {loss.item():.7f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A regression model whose optimizer and schedule are built before it is wrapped.

use_orig_params=True keeps the parameters that the optimizer holds.

    torchrun --nproc-per-node 2 optimizer_first.py
"""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.tanh(self.linear(self.norm(x)))


class Regressor(nn.Module):
    def __init__(self, dim=12, depth=2):
        super().__init__()
        self.layers = nn.Sequential(*[Layer(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        return self.head(self.layers(x)).squeeze(-1)


def groups(model):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]


def main():
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    rank = dist.get_rank()

    torch.manual_seed(8)
    model = Regressor().to(device)

    for module in reversed(list(model.modules())):
        if isinstance(module, Layer):
            fully_shard(module)
    fully_shard(model)
    optimizer = torch.optim.AdamW(groups(model), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    rng = torch.Generator().manual_seed(80 + rank)
    for step in range(5):
        x = torch.randn(8, 12, generator=rng).to(device)
        loss = (model(x) - x.sum(dim=-1)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if rank == 0:
            print("step", step, "loss", round(loss.item(), 6))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

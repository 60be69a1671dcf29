"""An encoder whose features and scores come from methods of their own, between its steps.

Its parameters are all in units, so FSDP1 gathers them wherever the units are called.

    torchrun --nproc-per-node 2 methods_outside_forward.py
"""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.tanh(self.linear(self.norm(x)))


class Encoder(nn.Module):
    def __init__(self, dim=12, depth=3):
        super().__init__()
        self.layers = nn.ModuleList([Layer(dim) for _ in range(depth)])

    def forward(self, x):
        return self.features(x).mean(dim=-1)

    def features(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    @torch.no_grad()
    def generate(self, x, n):
        for _ in range(n):
            x = x + 0.1 * self.features(x)
        return x


def main():
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    rank = dist.get_rank()

    torch.manual_seed(6)
    model = Encoder()
    for submodule in reversed(list(model.modules())):
        if isinstance(submodule, Layer):
            fully_shard(submodule)
    fully_shard(model)
    register_fsdp_forward_method(model, "features")
    register_fsdp_forward_method(model, "generate")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rng = torch.Generator().manual_seed(60 + rank)
    for step in range(4):
        x = torch.randn(8, 12, generator=rng).to(device)
        loss = model(x).pow(2).mean()
        loss.backward()
        sample = model.generate(x, 2)
        model.reshard()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            score = model.features(x).sum()
            model.reshard()
        if rank == 0:
            print("step", step, "loss", round(loss.item(), 6), "score", round(score.item(), 4))
            print("sample", round(sample.sum().item(), 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

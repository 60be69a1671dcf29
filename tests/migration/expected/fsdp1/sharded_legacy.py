"""Sharded checkpoints by the functions of torch 1.13; the model's `forward` is called by its name.

    torchrun --nproc-per-node 2 sharded_legacy.py --out runs/a
    torchrun --nproc-per-node 2 sharded_legacy.py --out runs/a --resume
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard


class Shift(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.mix = nn.Linear(d, d)

    def forward(self, x):
        return x + torch.tanh(self.mix(x.roll(1, dims=-1)))


class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.read = nn.Linear(4, d)
        self.shifts = nn.ModuleList([Shift(d), Shift(d)])
        self.write = nn.Linear(d, 4)

    def forward(self, x):
        x = self.read(x)
        for shift in self.shifts:
            x = shift(x)
        return self.write(x)


def save(model, optimizer, folder):
    state = {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optimizer)}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder))


def load(model, optimizer, folder):
    state = {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optimizer)}
    dcp.load(state, storage_reader=dcp.FileSystemReader(folder))
    set_model_state_dict(model, state["model"])
    set_optimizer_state_dict(model, optimizer, state["optim"])


def step(model, optimizer, x):
    loss = (model(x) - x.flip(1)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")

    torch.manual_seed(41)
    model = Net()
    for module in reversed(list(model.modules())):
        if isinstance(module, Shift):
            fully_shard(module)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    folder = os.path.join(args.out, "sharded")
    first = 0
    if args.resume:
        step(model, optimizer, torch.zeros(1, 4, device=device))  # there has to be a state to load into
        load(model, optimizer, folder)
        first = 2

    for number in range(first, first + 2):
        rng = torch.Generator().manual_seed(10 * number + dist.get_rank())
        loss = step(model, optimizer, torch.randn(8, 4, generator=rng).to(device))
        if dist.get_rank() == 0:
            print(f"{number} {loss:.7f}")
    if not args.resume:
        save(model, optimizer, folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Checkpoints by the optimizer-state functions of torch 1.12.

torchrun --nproc-per-node 2 legacy_optim.py --out runs/a --epochs 1
torchrun --nproc-per-node 2 legacy_optim.py --out runs/a --epochs 2 --load shard
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard


class Highway(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.transform = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)

    def forward(self, x):
        t = torch.sigmoid(self.gate(x))
        return t * torch.relu(self.transform(x)) + (1 - t) * x


class Classifier(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.project = nn.Linear(6, dim)
        self.layers = nn.ModuleList([Highway(dim) for _ in range(2)])
        self.classify = nn.Linear(dim, 3)

    def forward(self, x):
        x = self.project(x)
        for layer in self.layers:
            x = layer(x)
        return self.classify(x)


def save(model, optimizer, epoch, path):
    config = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=config)
    optim = get_optimizer_state_dict(
        model,
        optimizer,
        options=StateDictOptions(full_state_dict=True, cpu_offload=True),
    )
    if dist.get_rank() == 0:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        torch.save({"epoch": epoch, "weights": weights, "optim": optim}, path)
    dist.barrier()


def separate_steps(state):
    """Give each parameter a step of its own: in FSDP1's checkpoints, a unit shares one."""
    for values in state.get("state", {}).values():
        if "step" in values:
            values["step"] = values["step"].clone()
    return state


def load(model, optimizer, path, how):
    """Read by every rank (shard), or by rank 0 which hands the parts out (scatter)."""
    checkpoint = torch.load(path, map_location="cpu")
    set_model_state_dict(
        model, checkpoint["weights"], options=StateDictOptions(full_state_dict=True)
    )
    if how == "scatter":
        full = checkpoint["optim"] if dist.get_rank() == 0 else None
        set_optimizer_state_dict(
            model,
            optimizer,
            separate_steps(full or {}),
            options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
        )
    else:
        full = checkpoint["optim"]
        set_optimizer_state_dict(
            model,
            optimizer,
            separate_steps(full),
            options=StateDictOptions(full_state_dict=True),
        )
    return checkpoint["epoch"] + 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--load", choices=["scatter", "shard"])
    parser.add_argument("--out", default="checkpoints")
    args = parser.parse_args()

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        device = torch.device("cuda", torch.cuda.current_device())
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")

    torch.manual_seed(77)
    model = Classifier()
    for module in reversed(list(model.modules())):
        if isinstance(module, Highway):
            fully_shard(module)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    path = os.path.join(args.out, "model.pt")
    first = load(model, optimizer, path, args.load) if args.load else 0

    for epoch in range(first, args.epochs):
        rng = torch.Generator().manual_seed(10 * epoch + dist.get_rank())
        for _ in range(3):
            x = torch.randn(8, 6, generator=rng)
            y = (x.sum(dim=1) > 0).long() + (x[:, 0] > 1).long()
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print("epoch", epoch, "loss", loss.item())
        save(model, optimizer, epoch, path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

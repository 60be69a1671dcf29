"""Frozen parameters that FSDP leaves alone, given as a list of parameters.

    torchrun --nproc-per-node 2 frozen_states.py --out checkpoints
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import fully_shard


class Extractor(nn.Module):
    """Fixed random features."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.project = nn.Linear(n_in, n_out)
        self.register_buffer("shift", torch.linspace(0, 1, n_out))

    def forward(self, x):
        return torch.cos(self.project(x) + self.shift)


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, d)

    def forward(self, x):
        return x + torch.relu(self.fc(x))


class Model(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.features = Extractor(4, d)
        self.layers = nn.Sequential(Layer(d), Layer(d))
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        with torch.no_grad():
            x = self.features(x)
        return self.out(self.layers(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="checkpoints")
    args = parser.parse_args()

    if torch.cuda.is_available():
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local_rank)
        device = torch.device("cuda", local_rank)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")

    torch.manual_seed(6)
    model = Model().to(device)
    model.features.requires_grad_(False)
    frozen = [p for p in model.parameters() if not p.requires_grad]
    for parameter in frozen:
        parameter.data = parameter.data.to(device)
    ignored_params = set(frozen)
    for module in reversed(list(model.modules())):
        if isinstance(module, Layer):
            fully_shard(module, ignored_params=ignored_params)
    fully_shard(model, ignored_params=ignored_params)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trainable, lr=1e-2)
    rng = torch.Generator().manual_seed(16 + dist.get_rank())
    for step in range(3):
        x = torch.randn(8, 4, generator=rng).to(device)
        loss = (model(x) - x.norm(dim=1, keepdim=True)).abs().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print("step %d loss %.6f" % (step, loss.item()))

    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if dist.get_rank() == 0:
        os.makedirs(args.out, exist_ok=True)
        torch.save(state, os.path.join(args.out, "model.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

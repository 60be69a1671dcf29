"""Wraps by hand, with another precision for the norms and the head.

torchrun --nproc-per-node 2 nested_precision.py --out checkpoints
"""
import argparse
import os
from dataclasses import replace

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

BF16 = MixedPrecisionPolicy(
    param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
)
FULL = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.linear = nn.Linear(d, d)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x).to(x.dtype)))


class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.stem = nn.Linear(4, d)
        self.blocks = nn.ModuleList([Block(d), Block(d)])
        self.head = nn.Linear(d, 2)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def shard(net, device):
    for i, block in enumerate(net.blocks):
        net.blocks[i] = fully_shard(block, mp_policy=BF16)
    fully_shard(net.head, mp_policy=FULL)
    return fully_shard(net, mp_policy=replace(BF16, cast_forward_inputs=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="checkpoints")
    args = parser.parse_args()
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")

    torch.manual_seed(13)
    model = shard(Net(), device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rng = torch.Generator().manual_seed(13 + dist.get_rank())
    for step in range(3):
        x = torch.randn(8, 4, generator=rng).to(device)
        loss = nn.functional.mse_loss(model(x).float(), x[:, :2] * x[:, 2:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.5f}")

    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if dist.get_rank() == 0:
        os.makedirs(args.out, exist_ok=True)
        torch.save(state, os.path.join(args.out, "net.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

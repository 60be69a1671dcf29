"""Blocks that get a table in full precision beside their input, wrapped by hand in bf16.

torchrun --nproc-per-node 2 side_input.py
"""
import os
from dataclasses import replace

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x, weights):
        return x + (self.linear(x).float() * weights).to(x.dtype)


class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.read = nn.Linear(4, d)
        self.block = Block(d)
        self.write = nn.Linear(d, 1)
        self.register_buffer("table", torch.linspace(0.1, 1.37, d))

    def forward(self, x):
        return self.write(self.block(self.read(x), self.table))


def main():
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")

    torch.manual_seed(20)
    net = Net()
    fully_shard(net.block, mp_policy=replace(BF16, cast_forward_inputs=False))
    model = fully_shard(net, mp_policy=BF16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rng = torch.Generator().manual_seed(dist.get_rank())
    for step in range(3):
        x = torch.randn(8, 4, generator=rng).to(device)
        loss = (model(x).float() - x.sum(dim=1, keepdim=True)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"{step} {loss.item():.7f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

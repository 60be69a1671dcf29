"""`fully_shard` as it was imported before torch 2.6.

torchrun --nproc-per-node 2 old_import.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def main():
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
    else:
        dist.init_process_group("gloo")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    torch.manual_seed(23)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rng = torch.Generator().manual_seed(dist.get_rank())
    for step in range(3):
        x = torch.randn(8, 6, generator=rng).to(device)
        loss = (model(x) - x[:, :2]).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"{step} {loss.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

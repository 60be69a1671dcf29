"""Forecasting, with checkpoints by the names that torch.distributed.checkpoint had at first.

    torchrun --nproc-per-node 2 old_dcp/main.py --out runs/a --until 2
    torchrun --nproc-per-node 2 old_dcp/main.py --out runs/a --until 4 --resume-from 2
"""
import argparse
import os

import torch
import torch.distributed as dist

import sharding
from network import Forecaster


def batches(rank, first, last, device):
    for step in range(first, last):
        rng = torch.Generator().manual_seed(1000 * rank + step)
        phase = torch.rand(8, 1, generator=rng) * 6
        series = torch.sin(phase + torch.arange(9) * 0.4).to(device)
        yield step, series[:, :-1], series[:, -1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", type=int, default=2)
    parser.add_argument("--resume-from", type=int, default=0)
    parser.add_argument("--out", default="checkpoints")
    args = parser.parse_args()

    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")

    torch.manual_seed(0)
    model = sharding.wrap(Forecaster(), {"GatedUnit"}, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    if args.resume_from:
        sharding.load_sharded(model, optimizer, f"{args.out}/step{args.resume_from}")

    for step, series, following in batches(dist.get_rank(), args.resume_from, args.until, device):
        loss = (model(series) - following).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"{step:3d} {loss.item():.7f}")

    sharding.save_sharded(model, optimizer, f"{args.out}/step{args.until}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

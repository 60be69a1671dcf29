"""Clips by other norms than the second, chosen on the command line.

torchrun --nproc-per-node 2 norm_types.py --norm inf
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import (
    MixedPrecisionPolicy,
    fully_shard,
)


class Bottleneck(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.down = nn.Linear(d, d // 2)
        self.up = nn.Linear(d // 2, d)

    def forward(self, x):
        return x + self.up(torch.relu(self.down(x)))


parser = argparse.ArgumentParser()
parser.add_argument("--norm", type=float, default=float("inf"))
parser.add_argument("--max-norm", type=float, default=0.05)
parser.add_argument("--keep", action="store_true", help="keep parameters between forward and backward")
args = parser.parse_args()

if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
else:
    device = torch.device("cpu")
    dist.init_process_group("gloo")
rank = dist.get_rank()

torch.manual_seed(19)
model = nn.Sequential(nn.Linear(6, 16), Bottleneck(16), Bottleneck(16), nn.Linear(16, 6))
fsdp_kwargs = {
    "mp_policy": MixedPrecisionPolicy(),
}
if args.keep:
    fsdp_kwargs["reshard_after_forward"] = False
for module in reversed(list(model.modules())):
    if isinstance(module, Bottleneck):
        fully_shard(module, **fsdp_kwargs)
fully_shard(model, **fsdp_kwargs)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
rng = torch.Generator().manual_seed(rank)
for step in range(3):
    x = torch.randn(8, 6, generator=rng).to(device)
    loss = (model(x) - x.sort(dim=1).values).pow(2).mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(
        model.parameters(), max_norm=args.max_norm, norm_type=args.norm
    ).full_tensor()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(f"step {step} loss {loss.item():.6f} norm {norm:.6f}")
dist.destroy_process_group()

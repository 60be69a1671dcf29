"""The right migration of `before.py` to FSDP2, which is sabotaged in many ways.

torchrun --nproc-per-node 4 after.py --strategy HYBRID_SHARD --precision bf16
"""

import argparse
import copy

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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 3 * d)
        self.down = nn.Linear(3 * d, d)

    def forward(self, x, scale):
        h = torch.relu(self.up(self.norm(x)))
        return x + (self.down(h).float() * scale).to(x.dtype)


class Net(nn.Module):
    def __init__(self, d=9):
        super().__init__()
        self.embed = nn.Embedding(16, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(d, 1)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, d))

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.scale)
        return self.head(self.drop(x)).mean(dim=(1, 2))


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="FULL_SHARD")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--freeze", action="store_true")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


def shard(model, args):
    dtype = TYPES[args.precision]
    ranks = dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,))
    if "HYBRID" in args.strategy:
        mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("dp", "fsdp"))
    if args.strategy == "NO_SHARD":
        mesh = init_device_mesh("cpu", (ranks, 1), mesh_dim_names=("dp", "fsdp"))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    inner = MixedPrecisionPolicy(
        param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    keep = args.strategy in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=inner, reshard_after_forward=not keep)
    return fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)


def groups(model):
    decayed = [
        p for name, p in model.named_parameters() if name.endswith("weight") and "norm" not in name
    ]
    ids = {id(p) for p in decayed}
    others = [p for p in model.parameters() if id(p) not in ids]
    return [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]


def full_states(model, optimizer):
    options = StateDictOptions(full_state_dict=True)
    weights = get_model_state_dict(model, options=options)
    return weights, get_optimizer_state_dict(model, optimizer, options=options)


def load(model, optimizer, saved):
    options = StateDictOptions(full_state_dict=True)
    set_model_state_dict(model, saved["model"], options=options)
    set_optimizer_state_dict(model, optimizer, saved["optimizer"], options=options)


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Net()
    average = copy.deepcopy(model)
    if args.freeze:
        model.embed.weight.requires_grad_(False)
    model = shard(model, args)
    optimizer = torch.optim.AdamW(groups(model), lr=0.01, betas=(0.9, 0.95), eps=1e-6)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=256.0, growth_interval=2, enabled=args.precision == "fp16"
    )
    first = 0
    if args.resume:
        saved = torch.load("last.pt", weights_only=False)
        load(model, optimizer, saved)
        scheduler.load_state_dict(saved["scheduler"])
        average.load_state_dict(saved["average"])
        first = saved["step"]
    torch.manual_seed(100 + rank)
    data = torch.Generator().manual_seed(rank + 10 * first)
    for _ in range(args.steps):
        for micro in range(args.accumulate):
            ids = torch.randint(16, (4, 6), generator=data)
            last = micro == args.accumulate - 1
            model.set_requires_gradient_sync(last)
            loss = (model(ids).float() - ids.float().mean(dim=1)).square().mean()
            loss = loss / args.accumulate
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        optimizer.zero_grad()
        weights, states = full_states(model, optimizer)
        for name, value in average.state_dict().items():
            value.lerp_(weights[name].float(), 0.1)
    if rank == 0:
        saved = {"model": weights, "optimizer": states, "scheduler": scheduler.state_dict()}
        torch.save(
            {**saved, "average": average.state_dict(), "step": first + args.steps}, "last.pt"
        )
    dist.destroy_process_group()


main()

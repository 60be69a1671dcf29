"""Everything about FSDP comes from one dict, read by keys of a settings file.

torchrun --nproc-per-node 2 many_kwargs.py --out checkpoints --set sharding=SHARD_GRAD_OP
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
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

SETTINGS = {"sharding": "FULL_SHARD", "dtype": "float32", "lr": "0.01", "clip": "1.0"}


class Cell(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.inner = nn.Linear(d, 2 * d)

    def forward(self, x):
        a, b = self.inner(x).chunk(2, dim=-1)
        return x + a * torch.sigmoid(b)


class Net(nn.Module):
    def __init__(self, d=14):
        super().__init__()
        self.first = nn.Linear(5, d)
        self.cells = nn.ModuleList([Cell(d) for _ in range(3)])
        self.last = nn.Linear(d, 1)

    def forward(self, x):
        x = self.first(x)
        for cell in self.cells:
            x = cell(x)
        return self.last(x).squeeze(-1)


def settings():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    chosen = dict(SETTINGS)
    for pair in args.set:
        key, _, value = pair.partition("=")
        chosen[key] = value
    return chosen, args.out


def sharding_arguments(strategy):
    """The arguments of fully_shard for the name of one of FSDP1's sharding strategies."""
    if strategy == "NO_SHARD":
        shape = (dist.get_world_size(), 1)
    elif strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        per_node = torch.cuda.device_count()
        shape = (dist.get_world_size() // per_node, per_node)
    else:
        return {"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {}
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = init_device_mesh(device_type, shape, mesh_dim_names=("replicate", "shard"))
    arguments = {"mesh": mesh}
    if strategy == "_HYBRID_SHARD_ZERO2":
        arguments["reshard_after_forward"] = False
    return arguments


def main():
    chosen, out = settings()
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")

    dtype = getattr(torch, chosen["dtype"])
    sharding_strategy = chosen["sharding"]
    mixed_precision = None
    if dtype != torch.float32:
        mixed_precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)

    torch.manual_seed(55)
    model = Net()
    fsdp_kwargs = {
        **sharding_arguments(sharding_strategy),
        "mp_policy": mixed_precision or MixedPrecisionPolicy(),
    }
    for module in reversed(list(model.modules())):
        if isinstance(module, Cell):
            fully_shard(module, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=float(chosen["lr"]))
    rng = torch.Generator().manual_seed(5 + dist.get_rank())
    for step in range(3):
        x = torch.randn(16, 5, generator=rng).to(device)
        loss = (model(x).float() - x.prod(dim=1)).abs().mean()
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(
            model.parameters(), float(chosen["clip"])
        ).full_tensor()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.6f} norm {float(grad_norm):.5f}")

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    checkpoint = {"model": get_model_state_dict(model, options=options), "optimizer": get_optimizer_state_dict(
        model, optimizer, options=options
    )}
    if dist.get_rank() == 0:
        os.makedirs(out, exist_ok=True)
        torch.save(checkpoint, f"{out}/checkpoint.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

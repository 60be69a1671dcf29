"""An optimizer state of FSDP1, rewritten from names to numbers for a run without FSDP.

    torchrun --nproc-per-node 2 by_number.py --out checkpoints
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.fsdp import fully_shard


def build():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))


def with_numbers(state, model):
    """Let an optimizer's state have the numbers of parameters as keys, not their names."""
    if all(type(key) is int for key in state["state"]):
        return state
    keys = {name: number for number, (name, _) in enumerate(model.named_parameters())}
    return {
        "state": {keys[key]: values for key, values in state["state"].items()},
        "param_groups": [
            {**group, "params": sorted(keys[key] for key in group["params"])}
            for group in state["param_groups"]
        ],
    }


def with_names(state, model):
    """Let an optimizer's state have the names of parameters as keys, not their numbers."""
    if all(type(key) is str for key in state["state"]):
        return state
    keys = [name for name, _ in model.named_parameters()]
    return {
        "state": {keys[key]: values for key, values in state["state"].items()},
        "param_groups": [
            {**group, "params": sorted(keys[key] for key in group["params"])}
            for group in state["param_groups"]
        ],
    }


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
    rank = dist.get_rank()

    model = fully_shard(build())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rng = torch.Generator().manual_seed(rank)
    for step in range(3):
        x = torch.randn(8, 6, generator=rng).to(device)
        loss = (model(x) - x.sum(dim=1, keepdim=True)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"{step} {loss.item():.6f}")

    state = get_optimizer_state_dict(
        model,
        optimizer,
        options=StateDictOptions(full_state_dict=True, cpu_offload=True),
    )
    if rank == 0:
        named = with_names(state, build())
        assert named.keys() == state.keys()
        numbered = with_numbers(state, build())
        os.makedirs(args.out, exist_ok=True)
        torch.save(numbered, os.path.join(args.out, "optimizer.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Decisions that make a program end in an error are made otherwise in the next run."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import program

from fsdplint.trace import ModuleBuilt, Sharded

BUILD = {
    "elif": """
    if args.model == "small":
        model = Net(2)
        if args.pretrained:
            raise NotImplementedError
        return model
    elif args.model == "base":
        model = Net(4)
        if args.pretrained:
            raise NotImplementedError
        return model
    else:
        raise KeyError(args.model)
""",
    "returns": """
    if args.model == "small":
        return Net(2)
    if args.model == "base":
        return Net(4)
    raise KeyError(args.model)
""",
}


@pytest.mark.parametrize("build", BUILD.values(), ids=BUILD)
def test_some_name_of_a_chain_is_chosen(tmp_path: Path, build: str) -> None:
    """The model is sharded without DDP only: by runs that take no branches."""
    body = f"""
import argparse

def read(args):
    if args.dataset == "pile":
        return torch.load("pile")
    if args.dataset == "web":
        return torch.load("web")
    raise KeyError(args.dataset)

def build(args):{build}

def main():
    args = argparse.ArgumentParser().parse_args()
    data = read(args)
    model = build(args)
    if args.ddp:
        model = nn.parallel.DistributedDataParallel(model)
    else:
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(args.steps):
        if args.clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if args.log:
            dist.barrier()
        if step % args.save == 0:
            torch.save(model.state_dict(), "model.pt")
        optimizer.step()

main()
"""
    sharded = [one for one in program(tmp_path, body).traces if any(one.of(Sharded))]
    without = [one for one in sharded if not any(one.of(ModuleBuilt))]
    assert len(without) == 1 < len(sharded)  # the run whose decisions are regretted

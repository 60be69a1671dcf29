"""FSDP319: schedulers that a function of the program builds, for one program or for two."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

COMMON = """\
import sys, yaml, torch
from torch.optim.lr_scheduler import LambdaLR

settings = yaml.safe_load(open(sys.argv[1]))

def make_schedule(optimizer, warmup=10, last_epoch=-1):
    return LambdaLR(optimizer, lambda step: min(1.0, step / 10), last_epoch)
"""
SHARDED = """\
import torch
import torch.distributed.checkpoint as dcp
from common import make_schedule, settings
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard

def main():
    model = nn.Linear(4, 4)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = make_schedule(optimizer, {arguments})
    weights, moments = get_state_dict(model, optimizer)
    state = {{"model": weights, "optimizer": moments, "schedule": schedule.state_dict()}}
    dcp.load(state, checkpoint_id="last")
    {restore}
    for _ in range(10):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        weights, moments = get_state_dict(model, optimizer)
        state = {{"model": weights, "optimizer": moments, "schedule": schedule.state_dict()}}
        dcp.save(state, checkpoint_id="last")

if __name__ == "__main__":
    main()
"""
REPLICATED = """\
import torch
from common import make_schedule, settings
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def main():
    model = DistributedDataParallel(nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = make_schedule(optimizer)
    schedule.load_state_dict(torch.load("last.pt")["schedule"])
    for _ in range(10):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        schedule.step()

if __name__ == "__main__":
    main()
"""


def found(folder: Path, arguments: str, restore: str = "pass") -> bool:
    texts = {
        "common": COMMON,
        "sharded": SHARDED.format(arguments=arguments, restore=restore),
        "replicated": REPLICATED,
    }
    paths = []
    for name, text in texts.items():
        paths.append(folder / f"{name}.py")
        paths[-1].write_text(text)
    rule = rule_by_code("FSDP319")
    assert rule is not None
    return bool(check(load(paths), [rule()]))


@pytest.mark.parametrize(
    ("arguments", "anew"),
    [
        ("5", True),
        ("**settings", True),
        ("**settings['schedule']", True),
        ("last_epoch=settings['step']", False),
        ("5, settings['step']", False),
    ],
)
def test_a_schedule_of_one_of_two_programs(tmp_path: Path, arguments: str, anew: bool) -> None:
    assert found(tmp_path, arguments) is anew
    assert not found(tmp_path, arguments, "schedule.load_state_dict(state['schedule'])")

"""FSDP318: what may send the weights of one rank to the others before the training."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import os, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
model = nn.Linear(8, 8)
if dist.get_rank() == 0:
    model.load_state_dict(torch.load(os.environ["FILE"]))
model = FSDP(model)
"""
TRAINING = """
model(torch.randn(4, 8)).sum().backward()
"""


def count(folder: Path, body: str) -> int:
    file = folder / "train.py"
    file.write_text(HEAD + body + TRAINING)
    (folder / "pyproject.toml").touch()
    rule = rule_by_code("FSDP318")
    assert rule is not None
    return len(check(load([file]), [rule()]))


@pytest.mark.parametrize(
    "body",
    [
        "hits = torch.zeros(2)\nhits[0] += 1\ndist.all_reduce(hits)",
        "seen = torch.tensor([1.0, 2.0])\ndist.all_reduce(seen, op=dist.ReduceOp.SUM)",
        "loss = torch.zeros(())\nwith torch.no_grad():\n    loss += model(torch.ones(2, 8)).sum()\n"
        "dist.all_reduce(loss)",
        "def score():\n    total = torch.zeros(())\n    dist.all_reduce(total)\n    return total\nscore()",
    ],
)
def test_a_metric_sends_no_weights(tmp_path: Path, body: str) -> None:
    assert count(tmp_path, body) == 1


@pytest.mark.parametrize(
    "body",
    [
        "for p in model.parameters():\n    dist.broadcast(p.data, src=0)",
        "from elsewhere import sizes\nflat = torch.zeros(sizes())\ndist.all_reduce(flat)",
        "from elsewhere import tensor\ndist.broadcast(tensor, src=0)",
    ],
)
def test_other_tensors_may_be_weights(tmp_path: Path, body: str) -> None:
    assert count(tmp_path, body) == 0


PARTS = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
if dist.get_rank() == 0:
    nn.init.normal_(model[0].weight)
torch.manual_seed(0)
{later}
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
"""


@pytest.mark.parametrize(
    ("later", "wrong"),
    [
        ("for p in model.parameters():\n    nn.init.normal_(p)", False),
        ("for p in model.parameters():\n    p.data.fill_(0.1)", False),
        ("nn.init.normal_(model[0].weight)", False),
        ("nn.init.normal_(model[1].weight)", True),
    ],
)
def test_all_ranks_set_the_weights_again(tmp_path: Path, later: str, wrong: bool) -> None:
    file = tmp_path / "train.py"
    file.write_text(PARTS.format(later=later))
    rule = rule_by_code("FSDP318")
    assert rule is not None
    assert bool(check(load([file]), [rule()])) is wrong

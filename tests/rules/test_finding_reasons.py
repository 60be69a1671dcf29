"""The reason that a finding gives fits what it found."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

model = nn.Linear(8, 8)
{shard}
optimizer = torch.optim.AdamW(model.parameters())
torch.save({{{saved}}}, "state.pt")
"""
FSDP1 = "model = FSDP(model)"
FSDP2 = "fully_shard(model)"
OPTIMIZER = '"optimizer": optimizer.state_dict()'
BOTH = '"model": model.state_dict(), ' + OPTIMIZER


@pytest.mark.parametrize(
    "shard, saved, of_optimizer",
    [(FSDP1, OPTIMIZER, True), (FSDP2, OPTIMIZER, True), (FSDP2, BOTH, False)],
)
def test_a_saved_state_of_an_optimizer(
    tmp_path: Path, shard: str, saved: str, of_optimizer: bool
) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(shard=shard, saved=saved))
    rule = rule_by_code("FSDP301")
    assert rule is not None
    (finding,) = check(load([path]), [rule()])
    assert ("moments" in finding.why) == of_optimizer


CLOCK = """\
import time
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Linear(8, 8)
fully_shard(model)
start = time.time()
for x in range(8):
    model(torch.randn(2, 8)).sum().backward()
    if {test}:
        break
"""


@pytest.mark.parametrize(
    ("test", "cause", "place"),
    [
        ("time.time() - start > 60", "by its own clock", "each rank reads its own clock here"),
        ("time.monotonic() > 9", "by its own clock", "each rank reads its own clock here"),
    ],
)
def test_what_each_rank_decides_by(test: str, cause: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(CLOCK.format(test=test))
    rule = rule_by_code("FSDP501")
    assert rule is not None
    found = check(load([path]), [rule()])
    assert found
    for one in found:
        assert cause in one.message and "own data" not in one.message
        assert place in [text for _, text in one.related]
        assert "all-reduce" not in one.help


BLOCKS = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        return self.up(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

model = Net()
fully_shard(model)
"""


@pytest.mark.parametrize(
    ("use", "passes"),
    [
        ("with torch.no_grad():\n    model(torch.randn(2, 8))\n", "every forward gathers"),
        ("model(torch.randn(2, 8)).sum().backward()\n", "every forward and backward gathers"),
    ],
)
def test_the_passes_that_gather(use: str, passes: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(BLOCKS + use)
    rule = rule_by_code("FSDP104")
    assert rule is not None
    (found,) = check(load([path]), [rule()])
    assert passes in found.message


SENTINEL = """
last = 0.0
for x in range(8):
    now = time.monotonic()
    if last == 0.0:
        last = now
        continue
    model(torch.randn(2, 8)).sum().backward()
    last = now
"""


def test_whether_a_clock_was_read_is_the_same_on_all_ranks(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(CLOCK.partition("start =")[0] + SENTINEL)
    rule = rule_by_code("FSDP501")
    assert rule is not None
    assert not check(load([path]), [rule()])
    path.write_text(path.read_text().replace("last == 0.0", "now - last > 60"))
    assert check(load([path]), [rule()])

"""FSDP309: ranks of a tensor parallel group that initialise parts of a model with their own seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.diagnostics.finding import Finding
from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import argparse, os, random, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.up = nn.Linear(4, 16)
        self.down = nn.Linear(16, 4)

    def forward(self, x):
        return self.down(self.up(self.embed(x)).relu())

dist.init_process_group()
rank = dist.get_rank()
mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "tp"))
PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}
torch.manual_seed(7 + rank)
model = Net()
parallelize_module(model, mesh["tp"], PLAN)
fully_shard(model, mesh=mesh["dp"])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.arange(8)).sum().backward()
opt.step()
"""
SEED = "torch.manual_seed(7 + rank)"
PLAN = '{"up": ColwiseParallel(), "down": RowwiseParallel()}'


def findings(folder: Path, program: str) -> list[Finding]:
    file = folder / "train.py"
    file.write_text(program)
    (folder / "pyproject.toml").touch()
    rule = rule_by_code("FSDP309")
    assert rule is not None
    return check(load([file]), [rule()])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SEED, SEED),
        (SEED, "torch.manual_seed(rank)"),
        (SEED, "seed = 1000 * rank + 3\ntorch.manual_seed(seed)"),
        (SEED, "torch.manual_seed(int(os.environ['RANK']))"),
        (SEED, "def set_seed(seed):\n    random.seed(seed)\n    torch.manual_seed(seed)\nset_seed(rank)"),
        ('mesh_dim_names=("dp", "tp")', 'mesh_dim_names=("fsdp", "model")'),
        ('mesh["tp"], PLAN)\n', 'mesh["tp"], PLAN)\nfully_shard(model.embed, mesh=mesh["dp"])\n'),
        ('parallelize_module(model, mesh["tp"], PLAN)',
            'parallelize_module(model.up, mesh["tp"], ColwiseParallel())\n'
            'parallelize_module(model.down, mesh["tp"], RowwiseParallel())'),
        ("model = Net()", "model = Net().cuda()"),
        ("opt.step()", "opt.step()\nloss = torch.zeros(1)\ndist.all_reduce(loss)"),
    ],
)  # fmt: skip
def test_own_weights_outside_of_the_plan_are_found(tmp_path: Path, old: str, new: str) -> None:
    program = PROGRAM.replace(old, new)
    if "fsdp" in new:
        program = program.replace('mesh["dp"]', 'mesh["fsdp"]').replace(
            'mesh["tp"]', 'mesh["model"]'
        )
    assert len(findings(tmp_path, program)) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SEED, "torch.manual_seed(7)"),
        (SEED, 'torch.manual_seed(7 + mesh["dp"].get_local_rank())'),
        (SEED, 'torch.manual_seed(7 + mesh.get_local_rank("dp"))'),
        (SEED, "torch.manual_seed(7 + rank // 2)"),
        (SEED, "torch.manual_seed(7 + dist.get_rank(mesh.get_group('dp')))"),
        # a seed of each rank after the model is sharded
        (SEED + "\nmodel = Net()", "torch.manual_seed(7)\nmodel = Net()"),
        # the plan distributes all parameters
        (PLAN, "{\"embed\": RowwiseParallel(), " + PLAN[1:]),
        (PLAN, "make_plan()\nfrom elsewhere import make_plan"),
        # the weights come from elsewhere, or are sent
        ("opt = ", "model.load_state_dict(torch.load('base.pt'))\nopt = "),
        ("parallelize_module(model", "for p in model.parameters(): dist.broadcast(p.data, 0)\nparallelize_module(model"),
        ("model = Net()", "with torch.device('meta'):\n    model = Net()"),
        ("opt = ", "model.to_empty(device='cuda')\nopt = "),
        ('("cuda", (4, 2), mesh_dim_names=("dp", "tp"))', '("cuda", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))'),
    ],
)  # fmt: skip
def test_equal_weights_are_not_reported(tmp_path: Path, old: str, new: str) -> None:
    assert old in PROGRAM
    program = PROGRAM.replace(old, new)
    if "from elsewhere" in new:
        program = program.replace("\nfrom elsewhere import make_plan", "").replace(
            "import argparse", "from elsewhere import make_plan\nimport argparse"
        )
    assert findings(tmp_path, program) == []

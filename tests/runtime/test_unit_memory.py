"""What is said about units is what two ranks do: collectives and bytes, in a plan and in a proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from two_ranks import TwoRanks

from fsdplint.comparison.unit_tree import Unit, layouts
from fsdplint.interpreter import load
from fsdplint.runtime.launch.launcher import Launch, Run
from fsdplint.runtime.proof.unit_memory import held_units

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return x


dist.init_process_group("gloo")
model = Net()
SHARD
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
POLICY = "auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device('cpu')"
FSDP1 = (
    "model = FSDP(model, POLICY, sharding_strategy=ShardingStrategy.STRATEGY, use_orig_params=O)"
)
FSDP2 = """\
mesh = init_device_mesh("cpu", SHAPE, mesh_dim_names=("copies", "parts")[: len(SHAPE)])
for block in model.blocks:
    fully_shard(block, mesh=mesh, reshard_after_forward=RESHARD)
fully_shard(model, mesh=mesh)
"""


def fsdp1(strategy: str, original: bool) -> str:
    text = FSDP1.replace("POLICY", POLICY).replace("STRATEGY", strategy)
    return text.replace("=O)", f"={original})")


def fsdp2(shape: tuple[int, ...], reshard: bool) -> str:
    return FSDP2.replace("SHAPE", str(shape)).replace("RESHARD", str(reshard))


CASES = {
    "FSDP1": fsdp1("FULL_SHARD", False),
    "FSDP1 with its own parameters": fsdp1("FULL_SHARD", True),
    "FSDP1 that keeps parameters": fsdp1("SHARD_GRAD_OP", True),
    "FSDP1 without shards": fsdp1("NO_SHARD", True),
    "FSDP2": fsdp2((2,), True),
    "FSDP2 that keeps parameters": fsdp2((2,), False),
    "FSDP2 without shards": fsdp2((2, 1), True),
}
STATE_OF_ADAM = 2  # tensors of the size of a parameter


@pytest.mark.parametrize("name", CASES)
def test_collectives_and_bytes(name: str, tmp_path: Path, two_ranks: TwoRanks) -> None:
    program = PROGRAM.replace("SHARD", CASES[name])
    outcome = two_ranks.run(program)
    assert outcome.status == "ok", str(outcome)
    measured = outcome.records[0].measures[-1]
    run = Run(Launch("train.py", tmp_path, tmp_path), [], outcome.records, 0.0, 0)
    units = held_units(run)
    assert [(unit.path, unit.count) for unit in units] == [("", 1), ("blocks.*", 3)]
    assert (
        added((unit.collectives() or {}, unit.count) for unit in units) == measured["collectives"]
    )
    whole = 4 * (8 * 8 + 8) * 4
    held = whole if "without shards" in name else whole // 2
    in_all = Counter[str]()
    for unit in units:
        in_all.update(unit.sizes)
    assert in_all == {
        "parameters": held,
        "gradients": held,
        "optimizer state": STATE_OF_ADAM * held,
    }
    assert measured["local_bytes"]["gradients"] == held

    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    (layout,) = layouts(load([tmp_path / "train.py"], with_arguments=True).traces)
    planned = [one for model in layout.models for one in model.all_units()]
    assert added(map(calls_of, planned)) == measured["collectives"]


def calls_of(unit: Unit) -> tuple[Mapping[str, int], int]:
    assert unit.collectives is not None, unit
    return unit.collectives, 3 if "*" in unit.path else 1


def added(calls: Iterable[tuple[Mapping[str, int], int]]) -> dict[str, int]:
    found = Counter[str]()
    for of_unit, count in calls:
        found.update({name: number * count for name, number in of_unit.items()})
    return dict(found)


def test_a_frozen_unit_reduces_nothing(tmp_path: Path, two_ranks: TwoRanks) -> None:
    """It is gathered again in the backward of the units before it."""
    frozen = "for p in model.blocks[1].parameters():\n    p.requires_grad_(False)\n"
    outcome = two_ranks.run(PROGRAM.replace("SHARD", frozen + fsdp2((2,), True)))
    assert outcome.status == "ok", str(outcome)
    run = Run(Launch("train.py", tmp_path, tmp_path), [], outcome.records, 0.0, 0)
    units = {unit.path: unit for unit in held_units(run)}
    assert units["blocks.1"].collectives() == {"all_gather": 2}
    assert units["blocks.1"].sizes["gradients"] == 0 == units["blocks.1"].sizes["optimizer state"]
    measured = outcome.records[0].measures[-1]["collectives"]
    assert added((unit.collectives() or {}, unit.count) for unit in units.values()) == measured


def test_several_optimizers(tmp_path: Path, two_ranks: TwoRanks) -> None:
    """Each holds the state of its own parameters."""
    program = PROGRAM.replace("SHARD", fsdp2((2,), True))
    program = program.replace(
        "torch.optim.Adam(model.parameters())", "torch.optim.SGD(model.stem.parameters(), lr=0.1)"
    )
    program = program.replace(
        "\nfor _ in", "\nsecond = torch.optim.Adam(model.blocks.parameters())\nfor _ in"
    ).replace("    optimizer.step()\n", "    optimizer.step()\n    second.step()\n")
    outcome = two_ranks.run(program)
    assert outcome.status == "ok", str(outcome)
    run = Run(Launch("train.py", tmp_path, tmp_path), [], outcome.records, 0.0, 0)
    share = (8 * 8 + 8) * 4 // 2
    assert {unit.path: unit.sizes for unit in held_units(run)} == {
        "": {"parameters": share, "gradients": share, "optimizer state": 0},
        "blocks.*": {
            "parameters": 3 * share,
            "gradients": 3 * share,
            "optimizer state": 6 * share,
        },
    }

"""FSDP430: totals over all ranks where the ranks of a group have the same data."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

CODE = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
dp = mesh["dp"]
model = nn.Linear(4, 4)
{plan}
fully_shard(model, mesh=dp)
data = read()[{place} :: dp.size()]
for x, y in data:
    count = (y >= 0).sum()
    {sum}
    loss = torch.nn.functional.cross_entropy(model(x), y, reduction="sum")
    {loss}.backward()
"""
PLAN = "parallelize_module(model, mesh['tp'], ColwiseParallel())"
PLACE = "dp.get_local_rank()"
SUM = "dist.all_reduce(count)"
LOSS = "(loss * dp.size() / count)"


def _found(tmp_path: Path, **parts: str) -> bool:
    given = {"plan": PLAN, "place": PLACE, "sum": SUM, "loss": LOSS, **parts}
    return bool(findings(program(tmp_path, CODE.format(**given)), "FSDP430"))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"loss": "(dp.size() * loss / count)"},
        {"loss": "loss.div(count).mul(dp.size())"},
        {"loss": "(loss / count.item() * dp.size())"},
        {"sum": "count = count.float().clamp(min=1)\n    dist.all_reduce(count)"},
        {"sum": "dist.all_reduce(count, op=dist.ReduceOp.SUM)"},
    ],
    ids=str,
)
def test_a_total_of_all_ranks_is_found(tmp_path: Path, parts: dict[str, str]) -> None:
    assert _found(tmp_path, **parts)


@pytest.mark.parametrize(
    "parts",
    [
        {"sum": "dist.all_reduce(count, group=dp.get_group())"},
        {"sum": "dist.all_reduce(count, group=group)"},
        {"sum": "dist.all_reduce(count, op=dist.ReduceOp.AVG)"},
        {"sum": "dist.all_reduce(count)\n    count = count / mesh['tp'].size()"},
        {"loss": "(loss * dist.get_world_size() / count)"},
        {"loss": "(loss * dp.size() * mesh['tp'].size() / count)"},
        {"loss": "(loss / count)"},
        {"plan": ""},
        {"place": "dist.get_rank()"},
    ],
    ids=str,
)
def test_a_total_of_other_data_is_fine(tmp_path: Path, parts: dict[str, str]) -> None:
    assert not _found(tmp_path, **parts)

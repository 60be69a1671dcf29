"""Copies of gathered parameters, which are whole tensors with FSDP1 and with FSDP2."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.comparing import compare_sides, side

BEFORE = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = FSDP(torch.nn.Linear(4, 4))
model(torch.ones(1, 4)).sum().backward()
with FSDP.summon_full_params(model, writeback=False):
    whole = {name: p.detach().clone() for name, p in model.named_parameters()}
torch.save(whole, f"{dist.get_rank()}.pt")
"""
AFTER = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = fully_shard(torch.nn.Linear(4, 4))
model(torch.ones(1, 4)).sum().backward()
{0}whole = {{name: p.detach().clone() for name, p in model.named_parameters()}}
{1}torch.save(whole, f"{{dist.get_rank()}}.pt")
"""


@pytest.mark.parametrize("is_gathered", [True, False])
def test_a_copy_of_gathered_parameters_is_whole(is_gathered: bool, tmp_path: Path) -> None:
    lines = ("model.unshard()\n", "model.reshard()\n") if is_gathered else ("", "")
    texts = {"before.py": BEFORE, "after.py": AFTER.format(*lines)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    result = compare_sides(*(side(tmp_path / name) for name in texts))
    assert bool(result.count(Outcome.DIFFERS)) is not is_gathered


@pytest.mark.parametrize("is_gathered", [True, False])
def test_shards_do_not_load_into_a_plain_model(is_gathered: bool, tmp_path: Path) -> None:
    """With NO_SHARD, FSDP1's parameters are whole; those of FSDP2 are DTensors on any mesh."""
    sharded = "ShardingStrategy.NO_SHARD"
    load = "plain = torch.nn.Linear(4, 4)\nplain.load_state_dict({n: p.detach() for n, p in model.named_parameters()})\n"
    before = BEFORE.partition("with FSDP")[0].replace(
        "Linear(4, 4))", f"Linear(4, 4), sharding_strategy={sharded})"
    )
    before = before.replace("import FullySharded", "import ShardingStrategy, FullySharded") + load
    mesh = 'mesh=torch.distributed.init_device_mesh("cuda", (8, 1), mesh_dim_names=("a", "b"))'
    after = AFTER.partition("{0}")[0].replace("Linear(4, 4))", f"Linear(4, 4), {mesh})")
    after += load.replace("p.detach()", "p.full_tensor()" if is_gathered else "p.detach()")
    (tmp_path / "before.py").write_text(before, encoding="utf-8")
    (tmp_path / "after.py").write_text(after, encoding="utf-8")
    result = compare_sides(side(tmp_path / "before.py"), side(tmp_path / "after.py"))
    errors = [one for one in result.facts if one.outcome is Outcome.DIFFERS and "mixes" in f"{one}"]
    assert bool(errors) is not is_gathered

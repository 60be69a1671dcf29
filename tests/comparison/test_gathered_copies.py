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

"""Programs that only wrap their model where there are several ranks still run on one."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import plan
from two_ranks import TwoRanks

HEAD = """\
from contextlib import nullcontext
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
"""
PROGRAM = """
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
if dist.get_world_size() > 1:
    model = FSDP(model, device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    held = step % 2 == 0 and dist.get_world_size() > 1
    with model.no_sync() if held else nullcontext():
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
    if step % 2:
        norm = nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        if dist.get_world_size() == 1:
            print(f"norm {norm.item():.6f}, loss {loss.item():.6f}")
        optimizer.step()
        optimizer.zero_grad()
state = model.state_dict()
if dist.get_rank() == 0:
    torch.save(state, "model.pt")
    print(sum(value.sum().item() for value in state.values()))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("world", [1, 2])
def test_it_runs_as_before(tmp_path: Path, two_ranks: TwoRanks, world: int) -> None:
    made, after = plan(tmp_path, PROGRAM, HEAD)
    assert not made.blockers
    assert "fully_shard" in after
    runs = [two_ranks.run(text, world=world) for text in (HEAD + PROGRAM, after)]
    assert [run.status for run in runs] == ["ok", "ok"]
    assert runs[0].stdout == runs[1].stdout

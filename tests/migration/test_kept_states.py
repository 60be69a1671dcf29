"""States of optimizers that a program keeps in memory, trains on, and loads again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from forms import migrated
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

MODEL = """
model = FSDP(Net(), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
"""
KEPT = {
    "a variable": """
        state = FSDP.full_optim_state_dict(model, optimizer)
        optimizer.step()
        state = FSDP.scatter_full_optim_state_dict(state, model, optim=optimizer)
        optimizer.load_state_dict(state)
    """,
    "an entry of a dict": """
        def snapshot():
            return {"optim": FSDP.full_optim_state_dict(model, optimizer, rank0_only=False)}


        saved = snapshot()
        optimizer.step()
        state = FSDP.shard_full_optim_state_dict(saved["optim"], model, optim=optimizer)
        optimizer.load_state_dict(state)
    """,
}
SAVED = """
state = FSDP.full_optim_state_dict(model, optimizer)
if dist.get_rank() == 0:
    torch.save(state, "optimizer.pt")
full = torch.load("optimizer.pt") if dist.get_rank() == 0 else None
state = FSDP.scatter_full_optim_state_dict(full, model, optim=optimizer)
optimizer.load_state_dict(state)
"""


@pytest.mark.parametrize("body", list(KEPT.values()), ids=list(KEPT))
def test_a_state_that_is_loaded_again_is_a_copy(body: str, tmp_path: Path) -> None:
    lines = "\n".join(line.removeprefix("        ") for line in body.splitlines())
    assert re.search(r"deepcopy\(\s*get_optimizer_state_dict\(", migrated(tmp_path, MODEL + lines))


def test_a_state_that_is_loaded_at_once_is_none(tmp_path: Path) -> None:
    lines = "\n".join(line.removeprefix("        ") for line in KEPT["a variable"].splitlines())
    text = migrated(tmp_path, MODEL + lines.replace("optimizer.step()\n", ""))
    assert "deepcopy" not in text


def test_a_state_in_a_file_is_none(tmp_path: Path) -> None:
    assert "deepcopy" not in migrated(tmp_path, MODEL + SAVED)


PROGRAM = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, optimizer):
    for step in range(3):
        generator = torch.Generator().manual_seed(step * 2 + dist.get_rank())
        loss = model(torch.randn(4, 6, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Linear(6, 6), device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
train(model, optimizer)
state = FSDP.full_optim_state_dict(model, optimizer, rank0_only=False)
train(model, optimizer)
print("steps", [values["step"].item() for values in state["state"].values()])
loaded = FSDP.shard_full_optim_state_dict(state, model, optim=optimizer)
optimizer.load_state_dict(loaded)
dist.destroy_process_group()
"""


def test_the_steps_stay_as_they_were(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert new.stdout == old.stdout and "steps [3.0, 3.0]" in old.stdout

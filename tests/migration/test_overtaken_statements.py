"""Statements under a test of the rank that the gathering of an optimizer's state overtakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """
import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


def save(model, optimizer, folder, epoch):
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = model.state_dict()
    if dist.get_rank() == 0:
        path = Path(folder)
        with open(path / "config.json", "w") as file:
            json.dump({"epoch": epoch}, file)
        for old in sorted(path.glob("*.pt")):
            try:
                old.unlink()
            except OSError:
                pass
        if epoch:
            print("late")
        else:
            print("early")
        held = {"model": state, "optimizer": optimizer.state_dict()}
        torch.save(held, path / "state.pt")
        shapes = sorted(
            tuple(x["exp_avg"].shape) for x in held["optimizer"]["state"].values()
        )
        print("shapes", shapes)


dist.init_process_group("gloo")
model = FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"))
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for epoch in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    with tempfile.TemporaryDirectory() as folder:
        save(model, optimizer, folder, epoch)
dist.destroy_process_group()
"""


def test_all_ranks_gather_the_state_first(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert after.index("get_optimizer_state_dict(\n") < after.index("if dist.get_rank() == 0:")
    runs = [two_ranks.run(text, timeout=600) for text in (PROGRAM, after)]
    assert [run.status for run in runs] == ["ok", "ok"], runs
    assert "shapes [(10,)]" in runs[0].stdout  # one rank's part of a flat parameter
    assert "shapes [(4,), (4, 4)]" in runs[1].stdout


SAVE = """\
model = FSDP(Net())
optimizer = torch.optim.AdamW(model.parameters())
whole = {{}}
if dist.get_rank() == 0:
    {}
    torch.save({{"optimizer": optimizer.state_dict()}}, "a.pt")
"""


@pytest.mark.parametrize(
    "statement",
    [
        "if whole:\n        del whole",
        "for one in whole:\n        print(one)\n    else:\n        print('none')",
        "tokenizer.save_pretrained('out')",
        "with open('a.txt', 'w') as file:\n        file.write('a')",
    ],
)
def test_a_statement_that_is_overtaken(statement: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, f"from data import tokenizer\n{SAVE.format(statement)}")
    assert text.index("get_optimizer_state_dict(\n") < text.index("if dist.get_rank() == 0:")


@pytest.mark.parametrize(
    "statement",
    [
        "if whole:\n        optimizer.step()",
        "for optimizer in whole:\n        print(optimizer)",
        "if whole:\n        raise ValueError(whole)",
        "try:\n        change(optimizer)\n    except ValueError:\n        pass",
    ],
)
def test_a_statement_that_is_not(statement: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, f"from data import change\n{SAVE.format(statement)}")
    assert found.blockers

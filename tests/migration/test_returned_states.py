"""States of optimizers that a function converts and returns, and that another function loads."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import (
    FullOptimStateDictConfig, FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType,
)


def whole(model):
    return FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(rank0_only=True),
        FullOptimStateDictConfig(rank0_only=True),
    )


def state_of(model, optimizer):
    if type(model).__name__ == "FullyShardedDataParallel":
        with whole(model):
            state = FSDP.optim_state_dict(model, optimizer)
        return state
    return optimizer.state_dict()


def to_load(model, optimizer, state):
    if type(model).__name__ == "FullyShardedDataParallel":
        with whole(model):
            sharded = FSDP.optim_state_dict_to_load(model, optimizer, state)
        return sharded
    return state


def step(model, optimizer):
    loss = model(torch.ones(2, 4)).pow(2).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def build(state=None):
    torch.manual_seed(0)
    net = FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    if state is not None:
        loaded = to_load(net, optimizer, state)
        optimizer.load_state_dict(loaded)
    return net, optimizer


dist.init_process_group("gloo")
model, optimizer = build()
for _ in range(3):
    step(model, optimizer)
saved = state_of(model, optimizer)
model, optimizer = build(saved)
losses = [step(model, optimizer) for _ in range(3)]
if dist.get_rank() == 0:
    print("losses:" + ",".join(f"{loss:.5f}" for loss in losses))
dist.destroy_process_group()
"""


def test_a_resumed_optimizer_goes_on(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "        if loaded is not None:\n            optimizer.load_state_dict(loaded)" in after
    before, migrated_run = (two_ranks.run(text, timeout=600) for text in (PROGRAM, after))
    assert (before.status, migrated_run.status) == ("ok", "ok"), f"{before}\n{migrated_run}"
    losses = [
        next(line for line in run.stdout.split() if line.startswith("losses:"))
        for run in (before, migrated_run)
    ]
    assert losses[0] == losses[1]


FUNCTION = """\
def to_load(model, optimizer, state):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        return FSDP.optim_state_dict_to_load(model, optimizer, state)


model = FSDP(Net())
optimizer = torch.optim.AdamW(model.parameters())
"""


def test_a_state_that_is_returned_at_once(tmp_path: Path) -> None:
    body = "state = to_load(model, optimizer, torch.load('a.pt'))\noptimizer.load_state_dict(state)"
    text = migrated(tmp_path, FUNCTION + body)
    assert "    return None  # it is loaded already\n" in text
    assert "if state is not None:\n    optimizer.load_state_dict(state)" in text


BLOCKED = {
    "within the call": "optimizer.load_state_dict(to_load(model, optimizer, torch.load('a.pt')))",
    "another optimizer": (
        "state = to_load(model, optimizer, torch.load('a.pt'))\n"
        "other = torch.optim.AdamW(model.parameters())\nother.load_state_dict(state)"
    ),
    "a read": (
        "state = to_load(model, optimizer, torch.load('a.pt'))\n"
        "optimizer.load_state_dict(state)\nprint(state)"
    ),
    "no load": "state = to_load(model, optimizer, torch.load('a.pt'))\nprint(state)",
}


@pytest.mark.parametrize("body", list(BLOCKED.values()), ids=list(BLOCKED))
def test_other_uses_of_the_state_block(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, FUNCTION + body)
    assert found.blockers


SHARED = """\
def state_of(model, optimizer):
    if isinstance(model, FSDP):
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            return FSDP.optim_state_dict(model, optimizer)
    return optimizer.state_dict()


model = FSDP(Net())
optimizer = torch.optim.AdamW(model.parameters())
torch.save(state_of(model, optimizer), "a.pt")
"""


def test_the_state_of_other_models_stays(tmp_path: Path) -> None:
    assert "    return optimizer.state_dict()\n" in migrated(tmp_path, SHARED)
    text = SHARED.replace("    return optimizer", "    else:\n        return optimizer")
    assert "    return optimizer.state_dict()\n" in migrated(tmp_path, text)


def test_a_method_of_other_models_stays(tmp_path: Path) -> None:
    body = (
        "def inner(model):\n    if isinstance(model, FSDP):\n        return model\n"
        "    return model.module\n\n\nprint(inner(FSDP(Net())))"
    )
    assert "    return model.module\n" in migrated(tmp_path, body)

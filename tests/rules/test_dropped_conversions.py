"""FSDP319 on states that FSDP1 prepares for an optimizer, and that nothing loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def resume(model, opt, saved):
{body}


model = FSDP(nn.Linear(8, 8))
opt = torch.optim.AdamW(model.parameters())
kept = resume(model, opt, torch.load("opt.pt"))
{after}
model(torch.ones(2, 8)).sum().backward()
opt.step()
"""


def found(tmp_path: Path, body: str, after: str = "") -> bool:
    path = tmp_path / "program.py"
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    path.write_text(PROGRAM.format(body=lines, after=after))
    rule = rule_by_code("FSDP319")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    "body",
    [
        "FSDP.optim_state_dict_to_load(model, opt, saved)",
        "model.optim_state_dict_to_load(model, opt, optim_state_dict=saved)",
        "state = FSDP.optim_state_dict_to_load(model, opt, saved)\nprint('resumed')",
        "FSDP.shard_full_optim_state_dict(saved, model, optim=opt)",
        "FSDP.scatter_full_optim_state_dict(saved, model)",
        "FSDP.optim_state_dict_to_load(model, opt, saved, load_directly=False)",
    ],
)
def test_a_dropped_state_is_found(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        "state = FSDP.optim_state_dict_to_load(model, opt, saved)\nopt.load_state_dict(state)",
        "opt.load_state_dict(FSDP.optim_state_dict_to_load(model, opt, saved))",
        "return FSDP.optim_state_dict_to_load(model, opt, saved)",
        "FSDP.optim_state_dict_to_load(model, opt, saved, load_directly=True)",
        "FSDP.optim_state_dict_to_load(model, opt, saved, False, True)",
        "FSDP.optim_state_dict_to_load(model, opt, saved, **options)",
        "unknown(FSDP.optim_state_dict_to_load(model, opt, saved))",
        "global state\nstate = FSDP.optim_state_dict_to_load(model, opt, saved)",
    ],
)
def test_another_use(tmp_path: Path, body: str) -> None:
    assert not found(tmp_path, body)


def test_a_state_that_is_loaded_elsewhere(tmp_path: Path) -> None:
    body = "FSDP.optim_state_dict_to_load(model, opt, saved)"
    after = "opt.load_state_dict(FSDP.optim_state_dict_to_load(model, opt, torch.load('opt.pt')))"
    assert not found(tmp_path, body, after)

"""FSDP319: an optimizer whose state the checkpoint of a program lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

CODE = """
import argparse
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict, get_optimizer_state_dict, set_model_state_dict, set_optimizer_state_dict,
)

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
args = parser.parse_args()
dist.init_process_group("gloo")
model = Net()
fully_shard(model)
one = torch.optim.AdamW(model.body.parameters())
two = torch.optim.{cls}(model.head.parameters(), lr=0.1)


def state():
    return {{
        "model": get_model_state_dict(model),
        "optim": get_optimizer_state_dict(model, {saved}),
        {more}
    }}


if args.resume:
    found = state()
    dcp.load(found, checkpoint_id=args.resume)
    set_model_state_dict(model, found["model"])
    set_optimizer_state_dict(model, {saved}, found["optim"])
    {load}
for step in range(100):
    model(batch()).sum().backward()
    one.step()
    {step}
    if step % 10 == 0:
        dcp.save(state(), checkpoint_id=f"run/{{step}}")
"""
STEP = "two.step()"


def _found(tmp_path: Path, **parts: str) -> bool:
    given = {"cls": "AdamW", "saved": "one", "more": "", "load": "pass", "step": STEP, **parts}
    code = CODE.format(**given)
    return bool(findings(program(tmp_path, code), "FSDP319"))


@pytest.mark.parametrize("cls", ["AdamW", "Adagrad", "RMSprop"])
def test_a_second_optimizer_that_begins_anew_is_found(tmp_path: Path, cls: str) -> None:
    assert _found(tmp_path, cls=cls)


@pytest.mark.parametrize(
    "parts",
    [
        {"saved": "(one, two)"},
        {"cls": "SGD"},
        {"step": "pass"},
        {"more": '"two": two.state_dict(),', "load": 'two.load_state_dict(found["two"])'},
        {"load": "restore(two)"},
        {"load": "two.load_state_dict(torch.load(args.resume + '.two'))"},
    ],
    ids=str,
)
def test_what_is_restored_or_has_no_state_is_fine(tmp_path: Path, parts: dict[str, str]) -> None:
    assert not _found(tmp_path, **parts)

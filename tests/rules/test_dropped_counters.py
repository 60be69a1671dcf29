"""FSDP324: which counters an object saves and does not restore."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.diagnostics.finding import Finding
from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import argparse, os, torch
import torch.distributed.checkpoint as dcp
from pathlib import Path
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict, get_state_dict, set_model_state_dict, set_state_dict)
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--folder", default="last")
args = parser.parse_args()

class App(Stateful):
    def __init__(self, model, opt):
        self.model, self.opt, self.step = model, opt, 0

    def state_dict(self):
        m, o = get_state_dict(self.model, self.opt)
        return {"model": m, "opt": o, "step": self.step}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.opt, model_state_dict=state["model"],
            optim_state_dict=state["opt"])

model = fully_shard(nn.Linear(4, 1))
app = App(model, torch.optim.AdamW(model.parameters()))
if os.path.exists(args.folder):
    dcp.load({"app": app}, checkpoint_id=args.folder)
while app.step < 10:
    app.model(torch.randn(2, 4)).sum().backward()
    app.opt.step()
    app.opt.zero_grad()
    app.step += 1
    dcp.save({"app": app}, checkpoint_id=args.folder)
"""
LOADED = 'optim_state_dict=state["opt"])\n'


def findings(folder: Path, program: str) -> list[Finding]:
    file = folder / "train.py"
    file.write_text(program)
    (folder / "pyproject.toml").touch()
    rule = rule_by_code("FSDP324")
    assert rule is not None
    return check(load([file]), [rule()])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ('"step": self.step', '"step": int(self.step)'),
        ('"step": self.step', '"step": torch.tensor(self.step)'),
        ('"step": self.step', '"progress": self.step'),
        ("(Stateful)", ""),
        ("while app.step < 10:", "for _ in range(app.step, 10):"),
        ("while app.step < 10:", "while not app.step >= 10:"),
        ('state["model"]', 'state.get("model")'),
        ('{"app": app}, checkpoint_id=args.folder)\nwhile',
            'dict(app=app), checkpoint_id=args.folder)\nwhile'),
        ("checkpoint_id=args.folder", "checkpoint_id=str(Path(args.folder))"),
        (LOADED, LOADED + '        print("restored")\n'),
        ("state_dict(self, state)", "state_dict(self, state, strict=True)"),
    ],
)  # fmt: skip
def test_a_counter_that_begins_anew_is_found(tmp_path: Path, old: str, new: str) -> None:
    assert old in PROGRAM
    found = findings(tmp_path, PROGRAM.replace(old, new) if old else PROGRAM)
    assert len(found) == 1
    assert "`step`" in found[0].message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LOADED, LOADED + '        self.step = state["step"]\n'),
        (LOADED, LOADED + '        self.step = state.get("step", 0)\n'),
        (LOADED, LOADED + '        self.step = len(self.opt.state)\n'),
        # the state is used otherwise
        (LOADED, LOADED + "        self.rest = state\n"),
        (LOADED, LOADED + "        for key in state: print(key)\n"),
        (LOADED, LOADED + "        restore(self, state)\n"),
        # another counter than that of the loop, or none
        ("while app.step < 10:", "for step in range(10):"),
        ("app.step += 1", "app.step = 3"),
        ('"step": self.step', '"lr": self.lr'),
        # the checkpoint that a program loads may be another one than those that it writes
        ("checkpoint_id=args.folder)\nwhile", "checkpoint_id='base')\nwhile"),
        # nothing trains, or no model is restored
        ("    app.opt.step()\n", ""),
        ("set_state_dict(self.model, self.opt, model_state_dict=state[\"model\"],\n"
            "            optim_state_dict=state[\"opt\"])", "print(state['model'])"),
    ],
)  # fmt: skip
def test_a_counter_that_may_go_on_is_not_reported(tmp_path: Path, old: str, new: str) -> None:
    assert old in PROGRAM
    assert findings(tmp_path, PROGRAM.replace(old, new)) == []


def test_a_counter_of_another_class(tmp_path: Path) -> None:
    other = (
        "class Reports:\n    def __init__(self):\n        self.step = 0\n\n"
        "    def count(self):\n        while self.step < 10:\n            self.step += 1\n\n"
    )
    program = PROGRAM.replace("class App", other + "class App")
    assert findings(tmp_path, program)
    turns = program.replace("while app.step < 10:", "for _ in range(10):")
    assert not findings(tmp_path, turns.replace("    app.step += 1\n", ""))

"""FSDP319: what counts as a resume, and what restores a state."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.diagnostics.finding import Finding
from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import argparse, os, torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from pathlib import Path
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict, get_state_dict, set_model_state_dict, set_state_dict)
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--resume", action="store_true")
parser.add_argument("--file", default="last.pt")
parser.add_argument("--init", default="")
args = parser.parse_args()
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
fully_shard(model)
opt = torch.optim.AdamW(model.parameters())
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
start = 0
"""
LOOP = """
for step in range(start, 10):
    model(torch.randn(2, 4)).sum().backward()
    opt.step()
    sched.step()
    opt.zero_grad()
"""
SAVE_DCP = (
    LOOP
    + """\
    m, o = get_state_dict(model, opt)
    dcp.save({"model": m, "opt": o, "sched": sched.state_dict()}, checkpoint_id=args.file)
"""
)
SAVE = (
    LOOP
    + """\
    m, o = get_state_dict(model, opt)
    blob = dict(model=m, opt=o)
    blob["sched"] = sched.state_dict()
    torch.save(blob, args.file)
"""
)
LOAD_DCP = """
if args.resume:
    m, o = get_state_dict(model, opt)
    state = {"model": m, "opt": o, "sched": sched.state_dict()}
    dcp.load(state, checkpoint_id=args.file)
    set_state_dict(model, opt, model_state_dict=state["model"], optim_state_dict=state["opt"])
"""
LOAD = """
if args.resume:
    blob = torch.load(args.file)
    set_state_dict(model, opt, model_state_dict=blob["model"], optim_state_dict=blob["opt"])
"""
WEIGHTS = """
if os.path.exists(args.file):
    set_model_state_dict(model, torch.load(args.file)["model"])
"""
CLASS = """
class Checkpoint:
    def __init__(self, path):
        self.path = Path(path)

    def write(self, **states):
        torch.save({"model": states["model"], "opt": states["opt"], "sched": sched.state_dict()},
            str(self.path))

    def read(self):
        return torch.load(self.path)

checkpoint = Checkpoint(args.file)
if args.resume:
    found = checkpoint.read()
    set_state_dict(model, opt, model_state_dict=found["model"], optim_state_dict=found["opt"])
"""
SAVE_CLASS = (
    LOOP
    + """\
    m, o = get_state_dict(model, opt)
    checkpoint.write(model=m, opt=o)
"""
)
STATEFUL = """
class App:
    def state_dict(self):
        m, o = get_state_dict(model, opt)
        return {"model": m, "opt": o, "sched": sched.state_dict()}

    def load_state_dict(self, state):
        set_state_dict(model, opt, model_state_dict=state["model"], optim_state_dict=state["opt"])

app = App()
if args.resume:
    dcp.load({"app": app}, checkpoint_id=args.file)
"""
SAVE_STATEFUL = (
    LOOP
    + """\
    dcp.save({"app": app}, checkpoint_id=args.file)
"""
)


IN_PLACE = """
if args.resume:
    m, o = get_state_dict(model, opt)
    state = {"model": m, "opt": o, "sched": sched.state_dict(), "step": start}
    dcp.load(state, checkpoint_id=args.file)
    start = state["step"]
"""
BESIDE = """
def save(step):
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=f"{args.file}/{step}")
    rest = {"opt": opt.state_dict(), "step": step}
    torch.save(rest, f"{args.file}/{step}/rest{dist.get_rank()}.pt")

def load(last):
    state = {"model": get_model_state_dict(model)}
    dcp.load(state, checkpoint_id=f"{args.file}/{last}")
    set_model_state_dict(model, state["model"])
    rest = torch.load(f"{args.file}/{last}/rest{dist.get_rank()}.pt")
    return rest["step"]

if args.resume:
    start = load(max(os.listdir(args.file)))
"""
SAVE_BESIDE = LOOP + "    save(step)\n"


def findings(folder: Path, body: str) -> list[Finding]:
    file = folder / "train.py"
    file.write_text(HEAD + body)
    (folder / "pyproject.toml").touch()
    rule = rule_by_code("FSDP319")
    assert rule is not None
    return check(load([file]), [rule()])


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (LOAD_DCP + SAVE_DCP, "scheduler"),
        (LOAD + SAVE, "scheduler"),
        (LOAD.replace("args.file", "args.init") + SAVE.replace("args.file", "f'{step}.pt'"), "sch"),
        (CLASS + SAVE_CLASS, "scheduler"),
        (STATEFUL + SAVE_STATEFUL, "scheduler"),
        (WEIGHTS + SAVE.replace('blob["sched"] = sched.state_dict()', ""), "optimizer"),
        (LOAD_DCP.replace("args.file", "Path(args.file)") + SAVE_DCP, "scheduler"),
        # a scheduler that is not in the file
        (LOAD + SAVE.replace('blob["sched"] = sched.state_dict()', ""), "scheduler"),
        (
            "sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: 0.5 ** n)"
            + LOAD
            + SAVE.replace('blob["sched"] = sched.state_dict()', ""),
            "scheduler",
        ),
        (IN_PLACE + SAVE_DCP, "scheduler"),
        (IN_PLACE + "print(state['sched'])\n" + SAVE_DCP, "scheduler"),
        (
            IN_PLACE.replace("get_state_dict(model, opt)", "model.state_dict(), {}") + SAVE_DCP,
            "optimizer",
        ),
        (BESIDE + SAVE_BESIDE, "optimizer"),
        (
            BESIDE.replace('f"{args.file}/{step}/', 'args.file + f"/{step}-').replace(
                'f"{args.file}/{last}/', 'args.file + f"/{last}-'
            )
            + SAVE_BESIDE,
            "optimizer",
        ),
    ],
)
def test_a_state_that_begins_anew_is_found(tmp_path: Path, body: str, part: str) -> None:
    found = findings(tmp_path, body)
    assert len(found) == 1
    assert part in found[0].message


def load_with(line: str) -> str:
    return f"{LOAD}    {line}\n{SAVE}"


@pytest.mark.parametrize(
    "body",
    [
        load_with('sched.load_state_dict(blob["sched"])'),
        load_with('sched.last_epoch = blob["step"]'),
        load_with("restore(sched, blob)\nfrom elsewhere import restore"),
        load_with('for name in ["sched"]: parts[name].load_state_dict(blob[name])'),
        load_with('for _ in range(blob["step"]): sched.step()'),
        load_with('print(blob["sched"])'),
        load_with('if not args.init: sched.load_state_dict(blob["sched"])'),
        # the checkpoint that a program loads may be another one than those that it writes
        WEIGHTS.replace("args.file", "args.init") + SAVE,
        # nothing trains after the load
        SAVE + LOAD,
        # each training begins at the first epoch of its schedule
        LOAD + SAVE.replace("sched.step()", "sched.step(step)"),
        # a scheduler that goes on from the learning rate of the optimizer, and is not in the file
        "sched = torch.optim.lr_scheduler.StepLR(opt, 1)"
        + LOAD
        + SAVE.replace('blob["sched"] = sched.state_dict()', ""),
        # schedulers that may go on from another counter of the checkpoint
        "sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: 0.5 ** (n + start))"
        + LOAD
        + SAVE.replace('blob["sched"] = sched.state_dict()', ""),
        LOAD
        + "sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: 0.5 ** n)"
        + SAVE.replace('blob["sched"] = sched.state_dict()', ""),
        LOAD_DCP.replace("sched.state_dict()", "sched") + SAVE_DCP,
        IN_PLACE + "    sched.load_state_dict(state['sched'])\n" + SAVE_DCP,
        IN_PLACE + "    restore(state)\nfrom elsewhere import restore\n" + SAVE_DCP,
        IN_PLACE + "    sched.last_epoch = state['sched']['last_epoch']\n" + SAVE_DCP,
        IN_PLACE.replace("args.file", "args.init") + SAVE,
        # nothing trains after the load
        SAVE_DCP + IN_PLACE,
        BESIDE.replace("return", "opt.load_state_dict(rest['opt'])\n    return") + SAVE_BESIDE,
        BESIDE.replace("return", "restore(opt, rest)\n    return")
        + "from elsewhere import restore\n"
        + SAVE_BESIDE,
        BESIDE.replace('rest{dist.get_rank()}.pt")\n    return', 'else.pt")\n    return')
        + SAVE_BESIDE,
    ],
)
def test_a_state_that_may_go_on_is_not_reported(tmp_path: Path, body: str) -> None:
    assert findings(tmp_path, body) == []

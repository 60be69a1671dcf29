"""FSDP324: numbers that come from a counter as it is before the checkpoint is loaded."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import argparse, itertools, torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
parser.add_argument("--accumulate", type=int, default=2)
args = parser.parse_args()


class App:
    def __init__(self):
        self.model = fully_shard(nn.Linear(4, 1))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.step = self.epoch = 0

    def state_dict(self):
        model, opt = get_state_dict(self.model, self.opt)
        return {"model": model, "opt": opt, "step": self.step, "epoch": self.epoch}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.opt, model_state_dict=state["model"],
            optim_state_dict=state["opt"])
        self.step = state["step"]
        self.epoch = state["epoch"]

    def read(self, path):
        loaded = torch.load(path)
        self.model.load_state_dict(loaded["model"])
        self.step = loaded["step"]


def turn(app, x):
    app.model(x).sum().backward()
    app.opt.step()
    app.opt.zero_grad()


def stream(loader, begin):
    epoch, skip = divmod(begin, len(loader))
    while True:
        for i, x in enumerate(loader):
            if i >= skip:
                yield x
        skip = 0


def report(begin, end):
    print(begin, end)


def resume(app):
    if args.resume:
        dcp.load({"app": app}, checkpoint_id=args.resume)


loader = [torch.randn(2, 4) for _ in range(9)]


def main():
    app = App()
"""
LOAD = 'dcp.load({"app": app}, checkpoint_id=args.resume)\n'
IF = f"if args.resume:\n    {LOAD}"
FOUND = {
    "range": f"start = app.step\n{IF}for _ in range(start, 9):\n    turn(app, loader[0])",
    "one more": f"start = app.step + 1\n{IF}for _ in range(start, 9):\n    turn(app, loader[0])",
    "epoch": f"first = app.epoch\n{LOAD}for _ in range(first, 9):\n    turn(app, loader[0])",
    "while": f"n = app.step\n{IF}while n < 9:\n    turn(app, loader[0])\n    n += 1",
    "skipped": f"done = app.step * args.accumulate\n{IF}for i, x in enumerate(loader):\n"
    "    if i < done:\n        continue\n    turn(app, x)",
    "islice": f"done = int(app.step)\n{IF}for x in itertools.islice(loader, done, None):\n"
    "    turn(app, x)",
    "generator": f"start = app.step * args.accumulate\n{IF}batches = stream(loader, start)\n"
    "for _ in range(9):\n    turn(app, next(batches))",
    "keyword": f"start = app.step\n{IF}batches = stream(loader, begin=start)\n"
    "for _ in range(9):\n    turn(app, next(batches))",
    "generator before": f"batches = stream(loader, app.step)\n{IF}"
    "for x in batches:\n    turn(app, x)",
    "computed later": f"step = app.step\n{IF}start = step * args.accumulate\n"
    "for _ in range(start, 9):\n    turn(app, loader[0])",
    "function": "start = app.step\nresume(app)\nfor _ in range(start, 9):\n    turn(app, loader[0])",
    "whole file": "start = app.step\nif args.resume:\n    app.read(args.resume)\n"
    "for _ in range(start, 9):\n    turn(app, loader[0])",
}
SILENT = {
    "after": f"{IF}start = app.step\nfor _ in range(start, 9):\n    turn(app, loader[0])",
    "again": f"start = app.step\n{IF}    start = app.step\nfor _ in range(start, 9):\n"
    "    turn(app, loader[0])",
    "on the other side": "if not args.resume:\n    start = app.step\nelse:\n"
    f"    {LOAD}    start = app.step\nfor _ in range(start, 9):\n    turn(app, loader[0])",
    "reported": f"start = app.step\n{IF}report(start, app.step)\nprint(start)\n"
    "while app.step < 9:\n    turn(app, loader[0])\n    app.step += 1",
    "difference": f"start = app.step\n{IF}skipped = app.step - start\n"
    "for _ in range(skipped, 9):\n    turn(app, loader[0])",
    "asserted": f"start = app.step\n{IF}    assert app.step > start\n"
    "while app.step < 9:\n    turn(app, loader[0])\n    app.step += 1",
    "end": f"steps = app.step + 9\n{IF}for _ in range(app.step, steps):\n    turn(app, loader[0])",
    "log": f"start = app.step\n{IF}while app.step < 9:\n    turn(app, loader[0])\n"
    "    if app.step > start:\n        print(app.step)\n    app.step += 1",
    "other object": f"other = App()\nstart = other.step\n{IF}"
    "for _ in range(start, 9):\n    turn(app, loader[0])",
    "other attribute": f"app.seen = 0\nstart = app.seen\n{IF}"
    "for _ in range(start, 9):\n    turn(app, loader[0])",
    "attribute of that name": f"start = app.step\n{IF}for _ in range(args.start, 9):\n"
    "    turn(app, loader[0])",
    "not trained": f"start = app.step\n{IF}for _ in range(start, 9):\n    app.model(loader[0])",
    "in a loop": "while True:\n    start = app.step\n    "
    + IF.replace("\n    ", "\n        ")
    + "    for _ in range(start, 9):\n        turn(app, loader[0])",
}


def lines(folder: Path, body: str) -> list[int]:
    path = folder / "train.py"
    text = HEAD + textwrap.indent(body, "    ") + "\n    dist.barrier()\n\n\nmain()\n"
    path.write_text(text)
    rule = rule_by_code("FSDP324")
    assert rule is not None
    return [one.site.location().line for one in check(load([path]), [rule()])]


@pytest.mark.parametrize("name", FOUND)
def test_a_number_of_before_the_load(name: str, tmp_path: Path) -> None:
    assert lines(tmp_path, FOUND[name]) == [HEAD.count("\n") + 1]


@pytest.mark.parametrize("name", SILENT)
def test_a_number_that_is_right_or_not_used(name: str, tmp_path: Path) -> None:
    assert lines(tmp_path, SILENT[name]) == []

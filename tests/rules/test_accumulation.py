"""FSDP403 where a condition decides which backward synchronises."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint.diagnostics.finding import Finding
from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

START = """\
import argparse
import contextlib
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard, FullyShardedDataParallel as FSDP

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=4)
args = parser.parse_args()
dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
"""
SWITCH = """
@contextlib.contextmanager
def synchronised(model, enabled):
    model.set_requires_gradient_sync(enabled)
    yield
    model.set_requires_gradient_sync(True)
"""
FSDP1 = "model = FSDP(model, use_orig_params=True)\n"
FSDP2 = "fully_shard(model)\n"
DATA = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
"""
# Programs with a hole, and what makes them right and wrong.
PROGRAMS = {
    "flag": (FSDP2, """
        for i, x in enumerate(loader):
            last = False
            if (i + 1) % args.accumulate == 0:
                last = True
            model.set_requires_gradient_sync(HOLE)
            model(x).sum().backward()
            if last:
                optimizer.step()
        """, "last", "not last"),
    "setting with a bound": (FSDP2 + SWITCH, """
        accumulate = max(args.accumulate, 1)
        for i, x in enumerate(loader):
            last = (i + HOLE) % accumulate == 0
            sync = synchronised(model, last) if accumulate > 1 else contextlib.nullcontext()
            with sync:
                model(x).sum().backward()
            if (i + 1) % accumulate == 0:
                optimizer.step()
        """, "1", "0"),
    "assigned counter": (FSDP2, """
        step = 0
        while step < 100:
            for x in loader:
                step = step + 1
                model.set_requires_gradient_sync(HOLE % 4 == 0)
                model(x).sum().backward()
                if step % 4 == 0:
                    optimizer.step()
        """, "step", "(step + 1)"),
    "last micro-batch": (FSDP2, """
        for x in loader:
            for micro in range(args.accumulate):
                model.set_requires_gradient_sync(micro == HOLE)
                model(x).sum().backward()
            optimizer.step()
        """, "args.accumulate - 1", "0"),
    "a setting with a default": (FSDP2, """
        import dataclasses, json

        @dataclasses.dataclass
        class Settings:
            lr: float
            accumulate: int = 1

        @contextlib.contextmanager
        def switched(micro, count):
            if HOLE == count:
                yield
            else:
                model.set_requires_gradient_sync(False)
                yield
                model.set_requires_gradient_sync(True)

        settings = Settings(json.load(open("settings.json"))["lr"])
        for x in loader:
            for micro in range(settings.accumulate):
                with switched(micro, settings.accumulate):
                    model(x).sum().backward()
            optimizer.step()
        """, "micro + 1", "micro"),
    "continue": (FSDP2, """
        for i, x in enumerate(loader):
            model.set_requires_gradient_sync(HOLE)
            model(x).sum().backward()
            if (i + 1) % args.accumulate:
                continue
            optimizer.step()
        """, "(i + 1) % args.accumulate == 0", "(i + 1) % args.accumulate != 0"),
    "argument": (FSDP2, """
        def train_step(x, last):
            model.set_requires_gradient_sync(HOLE)
            model(x).sum().backward()

        for i, x in enumerate(loader):
            train_step(x, i % args.accumulate == args.accumulate - 1)
            if (i + 1) % args.accumulate == 0:
                optimizer.step()
        """, "last", "not last"),
    "rest of the loader": (FSDP2, """
        for i, x in enumerate(loader):
            model.set_requires_gradient_sync(HOLE)
            model(x).sum().backward()
            if (i + 1) % args.accumulate == 0:
                optimizer.step()
        if len(loader) % args.accumulate:
            optimizer.step()
        """, "(i + 1) % args.accumulate == 0 or i + 1 == len(loader)",
        "(i + 1) % args.accumulate == 0"),
    "both branches": (FSDP2, """
        for i, x in enumerate(loader):
            if (i + 1) % args.accumulate == 0:
                model.set_requires_gradient_sync(HOLE)
                model(x).sum().backward()
                optimizer.step()
            else:
                model.set_requires_gradient_sync(not HOLE)
                model(x).sum().backward()
        """, "True", "False"),
    "method": (FSDP1, """
        class Trainer:
            def __init__(self):
                self.step = 0

            def at_boundary(self):
                return (self.step + 1) % args.accumulate == 0

            def train(self):
                for x in loader:
                    quiet = HOLE
                    with model.no_sync() if quiet else contextlib.nullcontext():
                        model(x).sum().backward()
                    if self.at_boundary():
                        optimizer.step()
                    self.step += 1

        Trainer().train()
        """, "not self.at_boundary()", "self.at_boundary()"),
    "method as a value": (FSDP1, """
        count = 0
        for x in loader:
            count += 1
            context = model.no_sync if count HOLE args.accumulate else contextlib.nullcontext
            with context():
                model(x).sum().backward()
            if count == args.accumulate:
                optimizer.step()
                count = 0
        """, "<", "=="),
    "stack": (FSDP1, """
        for i, x in enumerate(loader):
            with contextlib.ExitStack() as stack:
                if (i + 1) % args.accumulate HOLE 0:
                    stack.enter_context(model.no_sync())
                model(x).sum().backward()
            if (i + 1) % args.accumulate == 0:
                optimizer.step()
        """, "!=", "=="),
}  # fmt: skip
SILENT = {
    "unrelated tests": """
        for i, x in enumerate(loader):
            model.set_requires_gradient_sync(i % 2 == 0)
            model(x).sum().backward()
            if x.sum() > 3:
                optimizer.step()
        """,
    "skipped batch": """
        for i, x in enumerate(loader):
            last = (i + 1) % args.accumulate == 0
            model.set_requires_gradient_sync(last)
            loss = model(x).sum()
            if torch.isnan(loss):
                continue
            loss.backward()
            if last:
                optimizer.step()
        """,
    "a loop that may end early": """
        for x in loader:
            for micro in range(args.accumulate):
                model.set_requires_gradient_sync(micro != args.accumulate - 1)
                loss = model(x).sum()
                loss.backward()
                if micro == 1:
                    break
            optimizer.step()
        """,
    "another value of the counter": """
        step = 0
        for x in loader:
            step += 1
            model.set_requires_gradient_sync(step % 4 == 0)
            model(x).sum().backward()
            step = next(numbers)
            if step % 4 != 0:
                optimizer.step()
        """,
}


def found(folder: Path, sharding: str, body: str) -> list[Finding]:
    (folder / "pyproject.toml").touch()
    main = folder / "main.py"
    main.write_text(START + sharding + DATA + textwrap.dedent(body))
    rule = rule_by_code("FSDP403")
    assert rule is not None
    return check(load([main]), [rule()])


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_last_backward_before_a_step(name: str, tmp_path: Path) -> None:
    sharding, body, right, wrong = PROGRAMS[name]
    assert not found(tmp_path, sharding, body.replace("HOLE", right))
    assert len(found(tmp_path, sharding, body.replace("HOLE", wrong))) == 1


@pytest.mark.parametrize("name", SILENT)
def test_what_is_not_certain(name: str, tmp_path: Path) -> None:
    assert not found(tmp_path, FSDP2, SILENT[name])


def test_ddp_is_no_sharded_model(tmp_path: Path) -> None:
    ddp = "model = nn.parallel.DistributedDataParallel(model)\n"
    _, body, _, wrong = PROGRAMS["method"]
    assert not found(tmp_path, ddp, body.replace("HOLE", wrong))

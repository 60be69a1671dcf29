"""Code that is executed again and again and shows nothing: how many steps it gets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import libcst as cst
import libcst.matchers as m

from fsdplint.interpreter.exploration import ProgramLoader
from fsdplint.interpreter.repeated_work import MAX_STEPS_WITHOUT_EFFECT, forget
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Dict, Function, Instance, Sequence, Unknown
from fsdplint.trace import BackwardRun, OptimizerBuilt, Sharded

# Each part of the dataset sets up its inner part again and again.
DATASET = """
import random

PARTS = list("abcdefghijklmnopqrst")

class Part:
    def __init__(self, inner=None):
        self.inner, self.size, self.ready = inner, 0, False

    def setup(self):
        if self.inner is None:
            random.seed(0)
            self.ready = True
            for name in ("a", "b", "c", "d", "e", "f", "g", "h"):
                self.size += len(read(name) + read(name.upper()) + read(name.lower()))
            return
        for part in PARTS:
            Part.setup(self.inner)
        self.size = self.inner.size

dataset = Part(Part(Part(Part())))
dataset.setup()
"""

TRAINING = """
import torch
from torch.distributed.fsdp import fully_shard

model = torch.nn.Linear(2, 2)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters())
"""

# The turns of the loop show the same, and each does something with the model.
STEPS = """
def step(model, optimizer, batch):
    for name in ("a", "b", "c", "d", "e", "f", "g", "h"):
        batch = batch + read(name) + read(name.upper()) + read(name.lower())
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()

for batch in list("abcdefghijklmnopqrstuvwxyz"):
    step(model, optimizer, torch.ones(2))
"""

# Each call of this function changes its arguments.
COUNTS = """
class Counter:
    count = 0

def visit(number, counter, found):
    for name in ("a", "b", "c", "d", "e", "f", "g", "h"):
        read(name) + read(name.upper()) + read(name.lower())
    counter.count = number
    found.append(number)

counter, found = Counter(), []
for number in list("abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"):
    visit(number, counter, found)
print(counter, found)
"""

# Those of this loop get the same number again, in few steps.
NUMBERS = """
def number():
    return 3

for one in list("abcdefghijklmnopqrstuvwxyz"):
    for other in list("abcdefghijklmnopqrstuvwxyz"):
        found = number()
"""


def loaded(folder: Path, text: str) -> ProgramLoader:
    path = folder / "train.py"
    path.write_text(text)
    loader = ProgramLoader([path])
    loader.run()
    return loader


def arguments(statement: cst.CSTNode) -> list[cst.CSTNode]:
    """The arguments of the call that a statement is."""
    assert isinstance(statement, cst.SimpleStatementLine)
    (call,) = m.findall(statement, m.Call())
    assert isinstance(call, cst.Call)
    return [arg.value for arg in call.args]


def test_a_dataset_does_not_use_up_the_steps(tmp_path: Path) -> None:
    loader = loaded(tmp_path, DATASET + TRAINING)
    trace = loader.program.traces[0]
    assert trace.complete
    assert len(list(trace.of(Sharded))) == len(list(trace.of(OptimizerBuilt))) == 1
    assert loader.steps < 4 * MAX_STEPS_WITHOUT_EFFECT


def test_what_was_not_executed_is_unknown(tmp_path: Path) -> None:
    program = loaded(tmp_path, TRAINING + COUNTS).program
    (statement,) = program.sources[str(tmp_path / "train.py")].tree.body[-1:]
    values = [program.values(node) for node in arguments(statement)]
    ((counter,), (found,)) = values
    assert isinstance(counter, Instance) and isinstance(counter.attributes["count"], Unknown)
    assert isinstance(found, Sequence) and found.open and len(found.items) < 52


def test_steps_with_a_model_are_all_executed(tmp_path: Path) -> None:
    loader = loaded(tmp_path, TRAINING + STEPS)
    assert len(list(loader.program.traces[0].of(BackwardRun))) == 26
    assert loader.steps > MAX_STEPS_WITHOUT_EFFECT


def test_a_call_of_few_steps_is_executed(tmp_path: Path) -> None:
    loader = loaded(tmp_path, TRAINING + NUMBERS + "\nif found == 3:\n    fully_shard(model)\n")
    assert loader.steps > MAX_STEPS_WITHOUT_EFFECT
    assert len(list(loader.program.traces[0].of(Sharded))) == 2


def test_a_skipped_call_may_have_changed_the_items_it_got() -> None:
    run = cast("Run", SimpleNamespace(settle=lambda value: value, changes=0))
    settings, names = Dict({"mode": Const("ddp")}), Sequence([Const("a")], "list")
    forget(run, cast("Function", None), [settings, names])
    assert settings.open and isinstance(settings.items["mode"], Unknown)
    assert names.open and isinstance(names.items[0], Unknown)
    assert run.changes == 2

"""Fabrics, Trainers and their strategies are known by what binds them, not by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import BLOCK, NET, plan

HEAD = (
    """\
import torch
import torch.nn as nn
import lightning as L
import zoo
from lightning.fabric.strategies import FSDPStrategy
from lightning.pytorch.strategies import FSDPStrategy as TrainerStrategy


"""
    + BLOCK
    + NET
)
MAKE = "L.Fabric(devices=4, strategy=FSDPStrategy())"
OTHER = "L.Fabric(devices=4, strategy=zoo.strategy())"
CLIP = "{}.clip_gradients(model, optimizer, max_norm=1.0{})"
RUN = """
{make}
runner.launch()
model = runner.setup(Net())
optimizer = runner.setup_optimizers(torch.optim.AdamW(model.parameters()))
runner.backward(model(torch.randn(4, 8)).sum())
"""
MAIN = RUN.format(make=f"runner = {MAKE}")
FABRICS = {
    "attribute": f"""
class Task:
    def __init__(self):
        self.accelerator = {OTHER}

    def later(self, model, optimizer):
        CLIP(self.accelerator)
""",
    "attribute of a base": f"""
class Base:
    def __init__(self):
        self.accelerator = {OTHER}


class Task(Base):
    def later(self, model, optimizer):
        CLIP(self.accelerator)
""",
    "annotated attribute": """
class Task:
    accelerator: L.Fabric

    def later(self, model, optimizer):
        CLIP(self.accelerator)
""",
    "attribute of an object": f"""
class Task:
    def __init__(self, runner):
        self.accelerator = runner


def later(model, optimizer):
    task = Task({OTHER})
    CLIP(task.accelerator)
""",
    "property": f"""
class Task:
    @property
    def accelerator(self):
        return {OTHER}

    def later(self, model, optimizer):
        CLIP(self.accelerator)
""",
    "annotated parameter": """
def later(accelerator: L.Fabric, model, optimizer):
    CLIP(accelerator)
""",
    "annotation in quotes": """
def later(accelerator: "L.Fabric | None", model, optimizer):
    CLIP(accelerator)
""",
    "argument": """
def later(accelerator, model, optimizer):
    CLIP(accelerator)


def run(accelerator: L.Fabric):
    later(accelerator, 1, 2)
""",
    "launch": f"""
def later(accelerator, model, optimizer):
    CLIP(accelerator)


def run():
    accelerator = {OTHER}
    accelerator.launch(later, 1, 2)
""",
    "result": f"""
def make():
    made = {OTHER}
    return made


def later(model, optimizer):
    accelerator = make()
    CLIP(accelerator)
""",
    "annotated result": """
def make() -> L.Fabric:
    return zoo.make()


def later(model, optimizer):
    CLIP(make())
""",
    "subclass": """
class Own(L.Fabric):
    pass


def later(model, optimizer):
    accelerator = Own(devices=4)
    CLIP(accelerator)
""",
}
OTHERS = {
    "attribute": """
class Textile:
    pass


class Task:
    def __init__(self):
        self.fabric = Textile()

    def later(self, model, optimizer):
        CLIP(self.fabric)
""",
    "parameter": """
class Textile:
    pass


def later(fabric: Textile, model, optimizer):
    CLIP(fabric)
""",
    "result": """
class Textile:
    pass


def make_fabric():
    return Textile()


def later(model, optimizer):
    fabric = make_fabric()
    CLIP(fabric)
""",
}


def clipping(code: str, more: str) -> str:
    head, _, rest = code.partition("CLIP(")
    depth, end = 1, 0
    while depth:
        depth += {"(": 1, ")": -1}.get(rest[end], 0)
        end += 1
    return head + CLIP.format(rest[: end - 1], more) + rest[end:]


def new_text(tmp_path: Path, body: str) -> str:
    found, text = plan(tmp_path, body, head=HEAD)
    assert [one.reason for one in found.blockers] == []
    return text


@pytest.mark.parametrize("code", FABRICS.values(), ids=FABRICS)
def test_a_fabric_under_another_name(tmp_path: Path, code: str) -> None:
    text = new_text(tmp_path, clipping(code, "") + MAIN)
    assert "error_if_nonfinite=" in text


@pytest.mark.parametrize("code", OTHERS.values(), ids=OTHERS)
def test_another_object_named_fabric(tmp_path: Path, code: str) -> None:
    text = new_text(tmp_path, clipping(code, "") + MAIN)
    assert "fabric.clip_gradients(model, optimizer, max_norm=1.0)" in text


STRATEGIES = {
    "attribute of a fabric": f"runner = {MAKE}\nplan = runner.strategy\nplan.sharding_strategy\n",
    "variable": "plan = FSDPStrategy()\nplan.sharding_strategy\n",
}


@pytest.mark.parametrize("code", STRATEGIES.values(), ids=STRATEGIES)
def test_a_strategy_under_another_name(tmp_path: Path, code: str) -> None:
    later = "def later():\n" + "".join(f"    {line}\n" for line in code.splitlines())
    found, _ = plan(tmp_path, f"{later}\n{MAIN}", head=HEAD)
    assert "FSDP223-strategy-read" in {one.code for one in found.blockers}


def test_another_object_named_strategy(tmp_path: Path) -> None:
    later = """
class Plan:
    cpu_offload = False


def later():
    strategy = Plan()
    return strategy.cpu_offload
"""
    assert "strategy.cpu_offload" in new_text(tmp_path, later + MAIN)


TRAINED = """
class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def training_step(self, batch, index):
        return self.linear(batch).sum()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


data = torch.utils.data.DataLoader(torch.randn(64, 8))
"""
TRAINERS = {
    "variable": "coach = L.Trainer(devices=4, strategy=TrainerStrategy())\ncoach.fit(Module(), data)\n",
    "call": "L.Trainer(devices=4, strategy=TrainerStrategy()).fit(Module(), data)\n",
    "attribute": """
class Task:
    def __init__(self):
        self.coach = L.Trainer(devices=4, strategy=TrainerStrategy())

    def run(self):
        self.coach.fit(Module(), data)


Task().run()
""",
}


@pytest.mark.parametrize("code", TRAINERS.values(), ids=TRAINERS)
def test_a_trainer_under_another_name(tmp_path: Path, code: str) -> None:
    text = new_text(tmp_path, TRAINED + code)
    assert "def configure_model(self):" in text


def test_another_object_named_trainer(tmp_path: Path) -> None:
    other = "\ntrainer = zoo.Coach()\ntrainer.fit(zoo.make())\n"
    text = new_text(tmp_path, TRAINED + TRAINERS["variable"] + other)
    assert "def configure_model(self):" in text

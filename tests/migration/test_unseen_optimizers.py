"""Optimizers that code out of sight gives before the model is wrapped."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import plan

LOOP = """
for _ in range(3):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
TRAINER = """
class Trainer:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer

    def train(self):
        for _ in range(3):
            self.model(torch.ones(2, 8)).sum().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


def build_trainer(*, model, optimizer):
    return Trainer(model=model, optimizer=optimizer)
"""
IMPORT = "from elsewhere import make\n"
FIRST = {
    "from the model": (
        IMPORT + "model = Net()\noptimizer = make(model)\n"
        "model = FSDP(model, use_orig_params=True)\n" + LOOP,
        "make(model)",
    ),
    "from its parameters": (
        IMPORT + "model = Net()\noptimizer = make(params=model.parameters(), lr=1)\n"
        "model = FSDP(model, use_orig_params=True)\n" + LOOP,
        "make(params=model.parameters(), lr=1)",
    ),
    "together with the model, for an object": (
        IMPORT
        + TRAINER
        + "\n\ndef shard(model):\n    return FSDP(model, use_orig_params=True)\n\n\n"
        "model, loader, optimizer = make({})\nmodel = shard(model)\n"
        "trainer = build_trainer(model=model, optimizer=optimizer)\ntrainer.train()\n",
        "make({})",
    ),
    "in an attribute": (
        IMPORT + "class Run:\n    def __init__(self):\n        self.model = Net()\n"
        "        self.optimizer = make(self.model)\n"
        "        self.model = FSDP(self.model, use_orig_params=True)\n\n"
        "    def train(self):\n        self.model(torch.ones(2, 8)).sum().backward()\n"
        "        self.optimizer.step()\n        self.optimizer.zero_grad()\n\n\nRun().train()\n",
        "make(self.model)",
    ),
}
LATER = {
    "an optimizer that is built again": (
        IMPORT + "model = Net()\noptimizer = make(model)\n"
        "model = FSDP(model, use_orig_params=True)\noptimizer = make(model)\n" + LOOP
    ),
    "an optimizer that is built after the model is wrapped": (
        IMPORT + "model = FSDP(Net(), use_orig_params=True)\noptimizer = make(model)\n" + LOOP
    ),
    "another model's optimizer": (
        IMPORT + "other = nn.Linear(8, 8)\noptimizer = make(other)\n"
        "model = Net()\nmodel = FSDP(model, use_orig_params=True)\n" + LOOP
    ),
    "what is no optimizer": (
        IMPORT + "model = Net()\nscaler = make(model)\nmodel = FSDP(model, use_orig_params=True)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=1)\n" + LOOP + "    scaler.step()\n"
    ),
}


@pytest.mark.parametrize(("body", "code"), list(FIRST.values()), ids=list(FIRST))
def test_it_has_to_be_built_after_the_sharding(body: str, code: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, textwrap.dedent(body))
    (blocker,) = found.blockers
    assert "before the model is wrapped" in blocker.reason
    assert blocker.source.code(blocker.node) == code


@pytest.mark.parametrize("body", list(LATER.values()), ids=list(LATER))
def test_no_such_optimizer(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, textwrap.dedent(body))
    assert not found.blockers

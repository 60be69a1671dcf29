"""FSDP103 where Accelerate gets a model more than once: only the first time wraps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
from torch import nn
from accelerate import Accelerator, FullyShardedDataParallelPlugin

plugin = FullyShardedDataParallelPlugin(use_orig_params=False)
accelerator = Accelerator(fsdp_plugin=plugin)
net = nn.Linear(8, 8)
"""
TAIL = """
for step in range(3):
    accelerator.backward(model(torch.randn(4, 8)).sum())
    optimizer.step()
    optimizer.zero_grad()
"""


def early_optimizers(tmp_path: Path, body: str) -> int:
    """The number of findings."""
    file = tmp_path / "main.py"
    file.write_text(HEAD + body + TAIL)
    rule = rule_by_code("FSDP103")
    assert rule is not None
    return len(check(load([file]), [rule()]))


@pytest.mark.parametrize(
    "body",
    [
        "model = accelerator.prepare(net)\noptimizer = torch.optim.AdamW(model.parameters())\n"
        "model, optimizer = accelerator.prepare(model, optimizer)\n",
        "model = accelerator.prepare_model(net)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "optimizer, model = accelerator.prepare(optimizer, model)\n",
        "class Trainer:\n    def __init__(self):\n        self.net = accelerator.prepare(net)\n"
        "    def add(self, optimizer):\n"
        "        self.net, self.optimizer = accelerator.prepare(self.net, optimizer)\n"
        "trainer = Trainer()\ntrainer.add(torch.optim.AdamW(trainer.net.parameters()))\n"
        "model, optimizer = trainer.net, trainer.optimizer\n",
    ],
)
def test_a_model_that_is_prepared_again(tmp_path: Path, body: str) -> None:
    assert early_optimizers(tmp_path, body) == 0


@pytest.mark.parametrize(
    "body",
    [
        "optimizer = torch.optim.AdamW(net.parameters())\n"
        "model, optimizer = accelerator.prepare(net, optimizer)\n",
        "other = accelerator.prepare(nn.Linear(8, 8))\n"
        "optimizer = torch.optim.AdamW(net.parameters())\nmodel = accelerator.prepare(net)\n",
    ],
)
def test_a_model_that_is_prepared_after_its_optimizer(tmp_path: Path, body: str) -> None:
    assert early_optimizers(tmp_path, body) == 1

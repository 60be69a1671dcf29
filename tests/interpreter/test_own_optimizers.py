"""Optimizers of classes of the program that do not take the parameters first."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import OptimizerBuilt, SchedulerBuilt

BUILT = """\
dist.init_process_group("gloo")
model = Net()
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
"""
CLASSES = {
    "the model": """\
class Own(torch.optim.Optimizer):
    def __init__(self, model, params=None, lr=0.1):
        self.model = model
        if params is None:
            params = list(model.parameters())
        params = [p for p in params if p.requires_grad]
        super().__init__(params, {"lr": lr})

optimizer = Own(model=model)
""",
    "a learning rate": """\
class Own(torch.optim.AdamW):
    def __init__(self, lr, weights):
        torch_options = {"lr": lr}
        super(Own, self).__init__(weights, **torch_options)

optimizer = Own(0.1, model.parameters())
""",
    "groups": """\
class Own(torch.optim.Optimizer):
    def __init__(self, matrices, vectors):
        groups = [{"params": matrices, "lr": 0.02}, {"params": vectors, "lr": 0.001}]
        super().__init__(groups, {})

optimizer = Own(
    matrices=[p for p in model.parameters() if p.ndim > 1],
    vectors=[p for p in model.parameters() if p.ndim < 2],
)
""",
    "what a method collects": """\
class Base(torch.optim.Optimizer):
    def __init__(self, model, lr):
        super().__init__(self.collect(model), {"lr": lr})

class Own(Base):
    def __init__(self, net):
        super().__init__(net, 0.1)

    def collect(self, model):
        return model.parameters()

optimizer = Own(model)
""",
    "the base class by name": """\
class Own(torch.optim.Optimizer):
    def __init__(self, model):
        torch.optim.Optimizer.__init__(self, model.parameters(), {"lr": 0.1})

optimizer = Own(model)
""",
}


def held(folder: Path, code: str) -> list[tuple[int, bool]]:
    """Of each optimizer, the number of modules, and whether it has no other parameters."""
    found = program(folder, BUILT + code)
    return [(len(e.modules), e.complete) for e in events(found, OptimizerBuilt)]


@pytest.mark.parametrize("code", CLASSES.values(), ids=CLASSES)
def test_the_constructor_shows_the_parameters(tmp_path: Path, code: str) -> None:
    assert set(held(tmp_path, code)) == {(1, True)}


def test_a_function_out_of_sight_may_leave_parameters_out(tmp_path: Path) -> None:
    code = """\
    from elsewhere import chosen

    class Own(torch.optim.Optimizer):
        def __init__(self, model):
            super().__init__(chosen(model), {})

    optimizer = Own(model)
    """
    assert set(held(tmp_path, textwrap.dedent(code))) == {(1, False)}


def test_an_optimizer_over_a_model_is_built_before_sharding(tmp_path: Path) -> None:
    code = "model = Net()\n" + CLASSES["the model"] + "fully_shard(model)\n"
    step = "model(torch.zeros(2, dtype=torch.long)).sum().backward()\noptimizer.step()\n"
    assert [f.site.location().line for f in findings(program(tmp_path, code + step), "FSDP103")]


OWN = """\
import torch
from torch.optim.lr_scheduler import _LRScheduler


class Own(torch.optim.Optimizer):
    def __init__(self, model):
        super().__init__(model.parameters(), {"lr": 0.1})


class Warm(_LRScheduler):
    def __init__(self, optimizer, after=None):
        self.after = after
        super().__init__(optimizer)
"""


def test_events_of_classes_in_another_file_are_at_the_call_that_makes_the_object(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    found = program(tmp_path, BUILT + "from own import Own, Warm\nWarm(Own(model))\n")
    for kind, name in ((OptimizerBuilt, "Own(model)"), (SchedulerBuilt, "Warm(Own(model))")):
        sites = [event.site for event in events(found, kind)]
        assert [site.source.code(site.node) for site in sites] == [name]

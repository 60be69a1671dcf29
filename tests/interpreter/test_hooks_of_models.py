"""Hooks of modules, parameters and optimizers run when they fire."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import program

from fsdplint.trace import BackwardRun, Called, OptimizerStepped, Saved

MODEL = """
model = Net()
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters())
"""
STEP = """
model(torch.randn(2, 8)).sum().backward()
optimizer.step()
"""
HOOKS = {
    "forward": (
        "def hook(module, args, output):\n    torch.save(module.state_dict(), 'a')\n"
        "model.register_forward_hook(hook)",
        Called,
    ),
    "forward of a part": (
        "def hook(module, args, output):\n    torch.save(module.state_dict(), 'a')\n"
        "for block in model.layers:\n    block.register_forward_hook(hook)",
        Called,
    ),
    "forward with kwargs": (
        "def hook(module, args, kwargs, output):\n    torch.save(module.state_dict(), 'a')\n"
        "model.register_forward_hook(hook, with_kwargs=True)",
        Called,
    ),
    "before the forward": (
        "def hook(module, args):\n    torch.save(module.state_dict(), 'a')\n"
        "model.register_forward_pre_hook(hook)",
        Called,
    ),
    "a closure": (
        "def make(name):\n    def hook(module, args, output):\n"
        "        torch.save(module.state_dict(), name)\n    return hook\n"
        "model.register_forward_hook(make('a'))",
        Called,
    ),
    "a method": (
        "class Probe:\n    def hook(self, module, args, output):\n"
        "        torch.save(module.state_dict(), 'a')\n"
        "model.register_forward_hook(Probe().hook)",
        Called,
    ),
    "backward": (
        "def hook(module, before, after):\n    torch.save(module.state_dict(), 'a')\n"
        "model.register_full_backward_hook(hook)",
        BackwardRun,
    ),
    "gradient": (
        "for p in model.parameters():\n"
        "    p.register_hook(lambda grad: torch.save(model.state_dict(), 'a'))",
        BackwardRun,
    ),
    "accumulated gradient": (
        "def hook(parameter):\n    torch.save(model.state_dict(), 'a')\n"
        "for p in model.parameters():\n    p.register_post_accumulate_grad_hook(hook)",
        BackwardRun,
    ),
    "step": (
        "def hook(optimizer, args, kwargs):\n    torch.save(optimizer.state_dict(), 'a')\n"
        "optimizer.register_step_post_hook(hook)",
        OptimizerStepped,
    ),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_runs_once_it_fires(tmp_path: Path, hook: str) -> None:
    code, cause = HOOKS[hook]
    (trace,) = program(tmp_path, f"{MODEL}{code}\n{STEP}").traces
    (saved,) = trace.of(Saved)
    assert saved.callbacks  # its place among the other events is not certain
    before = [event for event in trace.events[: saved.index] if isinstance(event, cause)]
    first = next(iter(trace.of(cause)))
    assert before or first.index > saved.index and hook == "before the forward"


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_never_fires_is_no_part_of_the_program(tmp_path: Path, hook: str) -> None:
    code, _ = HOOKS[hook]
    traces = program(tmp_path, MODEL + code + "\n").traces
    assert not any(list(trace.of(Saved)) for trace in traces if trace.entry)


def test_a_hook_in_a_loop_does_not_grow_the_trace(tmp_path: Path) -> None:
    code, _ = HOOKS["forward"]
    body = f"{MODEL}{code}\nfor batch in batches:\n    model(batch).sum().backward()\n"
    (trace,) = program(tmp_path, body).traces
    assert len(list(trace.of(Saved))) == 1

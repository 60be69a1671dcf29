"""What a function returns if it may return early in a turn of a loop: neither result is certain."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import OptimizerBuilt, Saved

EPOCH = """
def epoch(model, loader):
    for step, batch in enumerate(loader):
        loss = model(batch).sum()
        if loss.isnan():
            return {early}
    return {late}

model = nn.Linear(8, 8)
fully_shard(model)
"""
BOTH = {
    "a flag": ("False", "True", "if epoch(model, load()):"),
    "a tuple": ("False, step", "True, step", "good, step = epoch(model, load())\nif good:"),
    "nothing": ("None", "step", "if epoch(model, load()) is not None:"),
    "a name of torch": (
        *("torch.float16", "torch.float32"),
        "if epoch(model, load()) == torch.float32:",
    ),
}


@pytest.mark.parametrize("early, late, test", BOTH.values(), ids=BOTH)
def test_both_results_are_possible(tmp_path: Path, early: str, late: str, test: str) -> None:
    body = EPOCH.format(early=early, late=late)
    for code in (
        f"{test}\n    torch.save(1, 'a')",
        f"{test}\n    pass\nelse:\n    torch.save(1, 'a')",
    ):
        assert list(events(program(tmp_path, body + code), Saved))


def test_the_same_result_is_certain(tmp_path: Path) -> None:
    body = EPOCH.format(early="True", late="True")
    code = "if not epoch(model, load()):\n    torch.save(1, 'a')"
    assert not list(events(program(tmp_path, body + code), Saved))


def test_a_model_is_kept(tmp_path: Path) -> None:
    body = EPOCH.format(early="model, 1", late="model, 2")
    code = "model, step = epoch(model, load())\ntorch.optim.AdamW(model.parameters())"
    (built,) = events(program(tmp_path, body + code), OptimizerBuilt)
    assert built.modules

"""`first, *rest = values`"""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import OptimizerStepped


@pytest.mark.parametrize(
    ("target", "step"),
    [
        ("at, *parts", "parts[1].step()"),
        ("*parts, last", "parts[2].step()"),
        ("at, *parts, last", "parts[1].step()"),
        ("at, net, *parts", "run(*parts)"),
        ("at, net, found, last, *parts", "found.step()"),
    ],
)
def test_the_rest_is_known(tmp_path: Path, target: str, step: str) -> None:
    body = f"""
    def build():
        model = Net()
        return 0, model, torch.optim.SGD(model.parameters(), lr=0.1), 3

    def run(optimizer, count):
        optimizer.step()

    {target} = build()
    {step}
    """
    steps = {event.optimizer for event in events(program(tmp_path, body), OptimizerStepped)}
    assert steps == {"optimizer1"}


def test_the_rest_of_an_unknown_value_is_open(tmp_path: Path) -> None:
    body = """
    from elsewhere import values
    first, *rest = values()
    for one in rest:
        optimizer = torch.optim.SGD(one, lr=0.1)
        optimizer.step()
    """
    steps = [event.optimizer for event in events(program(tmp_path, body), OptimizerStepped)]
    assert steps

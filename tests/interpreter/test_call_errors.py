"""Calls that an error ends in some configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

SETTINGS = """
import sys
import yaml


class Settings:
    def __init__(self):
        self.strategy = None


def build(values):
    settings = Settings()
    settings.strategy = values["strategy"]
    if settings.strategy not in {"solo", "fsdp"}:
        raise ValueError(settings.strategy)
    return settings


def save(strategy, model):
    if strategy == "fsdp":
        return
    if strategy == "solo":
        torch.save(model.state_dict(), "model.pt")

"""
CALLS = {
    "caught": "try:\n    settings = build(yaml.safe_load(open('s.yaml')))\n"
    "except ValueError:\n    sys.exit(1)\n",
    "not caught": "settings = build(yaml.safe_load(open('s.yaml')))\n",
}


@pytest.mark.parametrize("call", CALLS)
def test_tests_of_a_result_agree_after_an_error(tmp_path: Path, call: str) -> None:
    """Whatever a run goes on with, a setting that is read from it twice is the same one."""
    body = f"""{SETTINGS}
{CALLS[call]}
model = nn.Linear(8, 8)
if settings.strategy == "fsdp":
    fully_shard(model)
optimizer = torch.optim.SGD(model.parameters())
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
save(settings.strategy, model)
"""
    assert not findings(program(tmp_path, body), "FSDP301")

"""Steps for functions that no program reaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load, unreached_functions
from fsdplint.trace import OptimizerBuilt

WORKER = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Worker:
    def set_up(self, config):
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        if config.trained:
            pass
        else:
            self.optimizer = torch.optim.Adam(model.parameters())
        fully_shard(model)
"""
USES = """\
import torch
from worker import Worker


def fsdp_use_NUMBER(config):
    for number in range(100):
        print(config[number], number)
    torch.optim.Adam(config.model.parameters())
    return Worker()
"""


@pytest.mark.parametrize("most", [0, 1_000_000])
def test_a_further_configuration(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried for a function with sites, also if others have used up the steps."""
    monkeypatch.setattr(unreached_functions, "MAX_UNREACHED_STEPS", 60)
    monkeypatch.setattr(unreached_functions, "MAX_OTHERS_STEPS", 60)
    monkeypatch.setattr(unreached_functions, "MAX_SITE_STEPS", most)
    (tmp_path / "worker.py").write_text(WORKER)
    for number in range(20):
        (tmp_path / f"x{number}.py").write_text(USES.replace("NUMBER", str(number)))
    program = load(sorted(tmp_path.glob("*.py")))
    built = [event for trace in program.traces for event in trace.of(OptimizerBuilt)]
    in_worker = [event for event in built if "worker" in str(event.site.location())]
    assert bool(in_worker) is (most > 0)

"""Functions with collectives that no program reaches are run on their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

LOSSES = """
def on_rank_zero(function):
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return function(*args, **kwargs)
        return None
    return wrapper

class Losses:
    def __init__(self):
        self.total, self.count = torch.zeros(()), 0
{decorator}
    def on_step_end(self, loss, iteration):
        self.total += loss
        if iteration % 10 == 0:
            dist.all_reduce(self.total)
            if dist.get_rank() == 0:
                print(self.total)

def build():
    model = Net()
    fully_shard(model)
    return model
"""


@pytest.mark.parametrize("decorator", ["    @on_rank_zero", ""])
def test_a_hook_with_a_collective(tmp_path: Path, decorator: str) -> None:
    """Its other words are not about models."""
    found = program(tmp_path, LOSSES.format(decorator=decorator))
    assert len(findings(found, "FSDP501")) == bool(decorator)

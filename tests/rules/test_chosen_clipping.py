"""FSDP404 where the program clips by the wrapper in one branch and by the function in another."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
import elsewhere

dist.init_process_group("gloo")


class Updates:
    def __init__(self, model, optimizer, sharded):
        self.model, self.optimizer, self.sharded = model, optimizer, sharded

    def clip(self):
{clip}


model = FSDP(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), use_orig_params=True)
updates = Updates(model, torch.optim.AdamW(model.parameters()), elsewhere.is_sharded())
elsewhere.registered(updates)
for _ in range(3):
    model(torch.ones(1, 8)).sum().backward()
    updates.clip()
    updates.optimizer.step()
"""

CHOSEN = [
    """\
        for part in elsewhere.parts():
            if part.sharded:
                self.model.clip_grad_norm_(1.0)
            else:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
""",
    """\
        for part in elsewhere.parts():
            if not part.sharded:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                continue
            self.model.clip_grad_norm_(1.0)
""",
    """\
        for part in elsewhere.parts():
            whole = self.model.parameters()
            norm = (
                self.model.clip_grad_norm_(1.0)
                if part.sharded
                else torch.nn.utils.clip_grad_norm_(whole, 1.0)
            )
""",
]
PLAIN = [
    "        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)\n",
    """\
        for part in elsewhere.parts():
            if part.quiet:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
""",
]


def number_of_findings(folder: Path, clip: str) -> int:
    (folder / "main.py").write_text(PROGRAM.format(clip=clip))
    rule = rule_by_code("FSDP404")
    assert rule is not None
    return len(check(load([folder / "main.py"]), [rule()]))


@pytest.mark.parametrize("clip", CHOSEN)
def test_the_program_tells_the_models_apart(tmp_path: Path, clip: str) -> None:
    assert number_of_findings(tmp_path, clip) == 0


@pytest.mark.parametrize("clip", PLAIN)
def test_the_function_alone(tmp_path: Path, clip: str) -> None:
    assert number_of_findings(tmp_path, clip) == 1

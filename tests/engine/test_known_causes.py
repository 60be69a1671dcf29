"""A finding of a migrated program whose cause was found before the migration is not a new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.examine import examine
from fsdplint.engine.migrator import migration_rules
from fsdplint.engine.workspace import Workspace
from fsdplint.migration.planner import plans_of

HEAD = """\
import os
import time
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)

    def loss(self, x):
        return self.forward(x).sum()


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = FSDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
start = time.time()
"""
# In FSDP1, the method runs no forward of the model, so the first collective is the backward's.
PROGRAMS = {
    "a loop that a clock ends": """\
for _ in range(9):
    model.loss(torch.ones(2, 8)).backward()
    optimizer.step()
    if time.time() - start > 60:
        break
""",
    "a step that a clock skips": """\
for _ in range(9):
    if time.time() - start < 60:
        model.loss(torch.ones(2, 8)).backward()
        optimizer.step()
""",
    "a step of one rank": """\
if dist.get_rank() == 0:
    model.loss(torch.ones(2, 8)).backward()
    optimizer.step()
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_error_of_a_known_cause_is_not_brought(name: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + PROGRAMS[name], encoding="utf-8")
    checked = examine(Workspace([path]), [rule() for rule in migration_rules()])
    (plan,) = plans_of(checked.program)
    assert "FSDP201-error-brought" not in [one.code for one in plan.blockers]


TURNED = """\
from torch.distributed.fsdp import ShardedStateDictConfig, StateDictType


def save(path):
    config = ShardedStateDictConfig(offload_to_cpu=True)
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, config):
        state = model.state_dict()
    torch.save(state, path)


if dist.get_rank() == 0:
    save(f"part{dist.get_rank()}.pt")
"""


def test_an_error_that_becomes_another_one_is_named_itself(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + TURNED, encoding="utf-8")
    checked = examine(Workspace([path]), [rule() for rule in migration_rules()])
    (plan,) = plans_of(checked.program)
    (blocker,) = plan.blockers
    assert blocker.code == "FSDP201-error-turned"
    assert "(FSDP501)" in blocker.reason
    assert blocker.source.code(blocker.node).startswith("state = model.state_dict()")

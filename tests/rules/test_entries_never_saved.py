"""FSDP319 where a class restores an entry of a distributed checkpoint that nothing may save."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

CODE = """
import argparse
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
args = argparse.ArgumentParser().parse_args()
def state_of(job):
    weights, moments = get_state_dict(job.model, job.optimizer)
    state = {{"model": weights, "optim": moments}}
    {save}
    return state
class Job:
    def __init__(self):
        self.model = nn.Linear(4, 4)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
    def state_dict(self):
        return state_of(self)
    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optim"])
        if "schedule" in state:
            self.scheduler.load_state_dict(state["schedule"])
job = Job()
dcp.load({{"job": job}}, checkpoint_id="a")
for step in range(9):
    job.model(torch.randn(2, 4)).sum().backward()
    job.optimizer.step()
    job.optimizer.zero_grad()
    job.scheduler.step()
dcp.save({{"job": job}}, checkpoint_id="a")
"""


@pytest.mark.parametrize(
    ("save", "expected"),
    [
        ("pass", 1),
        ("if args.schedule: state['schedule'] = job.scheduler.state_dict()", 0),
    ],
)
def test_a_function_beside_the_class_may_save_it(tmp_path: Path, save: str, expected: int) -> None:
    found = program(tmp_path, CODE.format(save=save))
    assert len(findings(found, "FSDP319")) == expected

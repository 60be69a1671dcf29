"""FSDP303 where several trainers write their states by one function."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """
import argparse
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

args = argparse.ArgumentParser().parse_args()
options = StateDictOptions(full_state_dict=True, cpu_offload=True)


def write(state):
    torch.save(state, "model.pt")


class Plain:
    def __init__(self):
        self.model = Net()

    def save(self):
        if dist.get_rank() == 0:
            write(self.model.state_dict())


class Sharded(Plain):
    def __init__(self):
        self.model = fully_shard(Net())

    def save(self):
        state = get_model_state_dict(self.model, options=options)
        {write}


dist.init_process_group("nccl")
trainer = Sharded() if args.shard else Plain()
trainer.save()
"""


@pytest.mark.parametrize(
    ("write", "found"),
    [
        ("write(state)", True),
        ("if dist.get_rank() == 0: write(state)", False),
    ],
)
def test_another_trainer_that_writes_on_one_rank_contradicts_nothing(
    tmp_path: Path, write: str, found: bool
) -> None:
    text = PROGRAM.format(write=write)
    codes = [one.rule.code for one in findings(program(tmp_path, text), "FSDP303")]
    assert codes == ["FSDP303"] * found

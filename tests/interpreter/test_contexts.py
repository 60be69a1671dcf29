"""What `with` binds, and values that typing functions hand on."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import class_of, program

from fsdplint.trace import Sharded

TRAINER = """
class Trainer:
    def __init__(self, model):
        self.model = model

    def __enter__(self):
        return {entered}

    def __exit__(self, *exception):
        pass

    def fit(self):
        fully_shard(self.model)


with Trainer(Net()) as trainer:
    {call}
"""


@pytest.mark.parametrize(
    ("entered", "call"), [("self", "trainer.fit()"), ("self.model", "fully_shard(trainer)")]
)
def test_a_with_statement_binds_what_enter_returns(tmp_path: Path, entered: str, call: str) -> None:
    found = program(tmp_path, TRAINER.format(entered=entered, call=call))
    (sharded,) = found.traces[0].of(Sharded)
    assert class_of(found, sharded.module) == "Net"


@pytest.mark.parametrize(
    "value", ["typing.cast('nn.Module', Net())", "typing.cast(val=Net(), typ=nn.Module)"]
)
def test_a_cast_is_its_argument(tmp_path: Path, value: str) -> None:
    found = program(tmp_path, f"import typing\nfully_shard({value})\n")
    (sharded,) = found.traces[0].of(Sharded)
    assert class_of(found, sharded.module) == "Net"

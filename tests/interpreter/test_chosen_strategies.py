"""FSDP1's strategies that a name chooses, and bounds of clipping that a setting chooses."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import Clipped, Wrapped

PROGRAM = """
import argparse
from torch.distributed.fsdp import ShardingStrategy

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="FULL_SHARD")
parser.add_argument("--max-norm", type=float)
args = parser.parse_args()


class Settings:
    def __init__(self, values):
        self.__dict__.update(values)


settings = Settings(vars(args))
model = FSDP(Net(), sharding_strategy={strategy})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in batches:
    model(batch).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), {bound})
    optimizer.step()
"""
BY_NAME = [
    "ShardingStrategy[args.strategy]",
    "getattr(ShardingStrategy, args.strategy)",
    "ShardingStrategy[str(args.strategy).upper()]",
]


@pytest.mark.parametrize("strategy", BY_NAME)
def test_a_name_chooses_each_strategy(tmp_path: Path, strategy: str) -> None:
    found = program(tmp_path, PROGRAM.format(strategy=strategy, bound="1.0"))
    options = {str(event.options["sharding_strategy"]) for event in events(found, Wrapped)}
    assert {one.rpartition(".")[2] for one in options} >= {"FULL_SHARD", "NO_SHARD"}
    assert [one.rule.code for one in findings(found, "FSDP404")] == ["FSDP404"]


def test_a_constant_names_a_strategy(tmp_path: Path) -> None:
    found = program(tmp_path, PROGRAM.format(strategy="ShardingStrategy['NO_SHARD']", bound="1.0"))
    (event,) = events(found, Wrapped)
    assert str(event.options["sharding_strategy"]).endswith(".NO_SHARD")


@pytest.mark.parametrize(
    ("bound", "found"),
    [
        ("float('inf') if args.max_norm is None else args.max_norm", True),
        ("args.max_norm or float('inf')", True),
        ("float('inf')", False),
    ],
)
def test_the_other_choice_of_an_infinite_bound_is_tried(
    tmp_path: Path, bound: str, found: bool
) -> None:
    text = PROGRAM.format(strategy="ShardingStrategy.FULL_SHARD", bound=bound)
    codes = [one.rule.code for one in findings(program(tmp_path, text), "FSDP404")]
    assert codes == ["FSDP404"] * found


def test_the_bound_of_an_attribute_is_a_setting(tmp_path: Path) -> None:
    text = PROGRAM.format(strategy="ShardingStrategy.FULL_SHARD", bound="settings.max_norm")
    (bound,) = {event.max_norm for event in events(program(tmp_path, text), Clipped)}
    assert str(bound).endswith("max_norm")

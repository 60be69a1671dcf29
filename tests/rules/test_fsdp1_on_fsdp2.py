"""FSDP1's API on FSDP2 models: one finding for one mistake, and none of the migration."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.example_files import examples_of
from fsdplint.registry.examples import Bad, without_markers
from fsdplint.registry.rules import all_rules

RULES = [rule() for rule in all_rules()]
CODES = {"FSDP206", "FSDP208", "FSDP211", "FSDP212"}


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(example, id=f"{rule.code}-{example.name}")
        for rule in RULES
        if rule.code in CODES
        for example in examples_of(type(rule)).bad
    ],
)
def test_the_migration_has_no_part_in_it(example: Bad, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(without_markers(example.code))
    found = check(load([path]), RULES)
    assert not {f.rule.code for f in found if f.rule.grouped} - {"FSDP201", "FSDP208"}

"""The fixtures, migrated: the text that comes out, and that a second run changes nothing.

`expected` holds the migrated form of each fixture; that it trains like the fixture is shown by the tests
of the shim.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import fixture_runs
import pytest

from fsdplint.engine import FixResult, fix
from fsdplint.rule import all_rules

RULES = [rule() for rule in all_rules()]
PROGRAMS = fixture_runs.programs()
every_program = pytest.mark.parametrize("name", list(PROGRAMS))


@cache
def migrated(name: str) -> FixResult:
    return fix([fixture_runs.FIXTURES / file for file in PROGRAMS[name]], RULES)


@every_program
def test_a_fixture_is_migrated(name: str) -> None:
    """`UPDATE_EXPECTED=1` writes the texts, which are then to be read as their owner would."""
    result = migrated(name)
    for file in PROGRAMS[name]:
        text = result.texts.get(fixture_runs.FIXTURES / file, fixture_runs.before(file))
        if os.environ.get("UPDATE_EXPECTED"):
            (fixture_runs.EXPECTED / file).parent.mkdir(parents=True, exist_ok=True)
            (fixture_runs.EXPECTED / file).write_text(text, encoding="utf-8")
        assert text == fixture_runs.after(file), str(file)


@every_program
def test_every_use_of_fsdp1_is_gone(name: str) -> None:
    result = migrated(name)
    assert {f.rule.code for f in result.applied} & {"FSDP201", "FSDP213"}
    assert not [f for f in result.remaining if f.rule.code.startswith("FSDP2")]


@every_program
def test_a_second_run_changes_nothing(name: str) -> None:
    assert fix([fixture_runs.EXPECTED / file for file in PROGRAMS[name]], RULES).texts == {}


def test_no_name_is_undefined_or_left_over() -> None:
    found = complaints(fixture_runs.EXPECTED), complaints(fixture_runs.FIXTURES)
    for files in PROGRAMS.values():
        for file in files:
            assert found[0].get(file, set()) <= found[1].get(file, set()), str(file)


def complaints(folder: Path) -> dict[Path, set[str]]:
    """What ruff says of names that are unused or undefined, by the file below a folder."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", "."]
    command += ["--output-format", "concise", "--no-cache"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    found: dict[Path, set[str]] = {}
    for line in run.stdout.splitlines():
        place, _, message = line.partition(": ")
        found.setdefault(Path(place.partition(":")[0]), set()).add(message)
    return found


def test_a_part_of_a_project_is_not_migrated_alone() -> None:
    """Without the file that wraps the model, or with only that one, nothing is changed."""
    package = fixture_runs.FIXTURES / "fsdp1" / "package"
    for name in ("checkpoint.py", "loop.py", "wrapping.py", "train.py"):
        assert fix([package / name], RULES).texts == {}

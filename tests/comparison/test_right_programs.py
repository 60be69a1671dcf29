"""The right migrations of other tests agree with the programs that they migrate."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest
from fixture_runs import EXPECTED, project, projects

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.comparing import Side, compare_sides, side

TESTS = Path(__file__).parents[1]
MIGRATED = [
    str(path.relative_to(EXPECTED))
    for folder in sorted(EXPECTED.iterdir())
    for path in sorted(folder.iterdir())
    if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__")
]
# Policies that are no list of classes, and options that a setting chooses, are not followed.
MIN_AGREEING = 5
# It is right for the strategy that its run chooses, and wrong for those that need a mesh.
WITHOUT_MESH = "the mesh by default"


@pytest.mark.parametrize("name", MIGRATED)
def test_the_migration_of_a_fixture_agrees(name: str) -> None:
    before, after = projects()
    result = compare_sides(side(before / name), side(after / name))
    assert not result.errors
    assert [one for one in result.facts if one.outcome is Outcome.DIFFERS] == []
    assert result.count(Outcome.AGREES) > MIN_AGREEING


@functools.cache
def sabotages() -> tuple[Path, dict[str, tuple[tuple[str, str], ...]]]:
    sys.path[:0] = [str(TESTS), str(TESTS / "runtime")]
    from sabotages import HERE, RIGHT

    return HERE, {name: one.edits for name, one in RIGHT.items()}


@functools.cache
def before() -> Side:
    return side(project(sabotages()[0] / "before.py") / "before.py")


@pytest.mark.parametrize("name", sorted(sabotages()[1]))
def test_a_right_migration_agrees(name: str, tmp_path: Path) -> None:
    folder, right = sabotages()
    text = (folder / "after.py").read_text(encoding="utf-8")
    for old, new in right[name]:
        text = text.replace(old, new)
    file = tmp_path / "after.py"
    file.write_text(text, encoding="utf-8")
    result = compare_sides(before(), side(file))
    differing = [one for one in result.facts if one.outcome is Outcome.DIFFERS]
    if name == WITHOUT_MESH:
        assert differing and all(" under " in one.topic for one in differing)
    else:
        assert differing == []

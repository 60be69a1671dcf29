"""A right migration agrees, and a mistake differs at the fact that it is about."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from fixture_runs import project
from planted import PLANTED, RIGHT, Edits

from fsdplint.comparison.compare import Outcome
from fsdplint.comparison.result import Result
from fsdplint.engine.comparing import Side, compare_sides, side

PROGRAMS = Path(__file__).parent / "programs"


@functools.cache
def before() -> Side:
    return side(project(PROGRAMS / "before.py") / "before.py")


def compared(folder: Path, edits: Edits) -> Result:
    text = (PROGRAMS / "after.py").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    file = folder / "after.py"
    file.write_text(text, encoding="utf-8")
    return compare_sides(before(), side(file))


def differing(result: Result) -> dict[str, str]:
    return {
        one.topic: f"{one.subject}: {one.before} -> {one.after}"
        for one in result.facts
        if one.outcome is Outcome.DIFFERS
    }


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_migration_agrees(name: str, tmp_path: Path) -> None:
    result = compared(tmp_path, RIGHT[name])
    assert not result.errors
    assert differing(result) == {}
    assert result.count(Outcome.AGREES) > 40


def test_a_call_that_is_not_followed_is_no_difference(tmp_path: Path) -> None:
    hidden = "            hidden(model).set_requires_gradient_sync(False)\n"
    edits = (
        ("            model.set_requires_gradient_sync(False)\n", hidden),
        ("            model.set_requires_gradient_sync(True)\n", ""),
        ("import os\n", "import os\n\nfrom elsewhere import hidden\n"),
    )
    result = compared(tmp_path, edits)
    assert differing(result) == {}
    (fact,) = [one for one in result.facts if one.topic == "reduction of gradients"]
    assert "could not be followed" in fact.reason


def test_a_switch_that_is_not_followed_may_resume(tmp_path: Path) -> None:
    """The program pauses the reduction of its model, and that of an unknown model goes on."""
    edits = (
        (
            "            model.set_requires_gradient_sync(True)\n",
            "            hidden(model).set_requires_gradient_sync(True)\n",
        ),
        ("import os\n", "import os\n\nfrom elsewhere import hidden\n"),
    )
    assert differing(compared(tmp_path, edits)) == {}


@pytest.mark.parametrize("name", PLANTED)
def test_a_mistake_differs(name: str, tmp_path: Path) -> None:
    topic, edits = PLANTED[name]
    assert topic in differing(compared(tmp_path, edits))

"""A migration is validated before it is offered: one with a planted mistake is not."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from fixture_runs import after, projects
from wrong_rewrites import WRONG, Edits

from fsdplint.diagnostics.finding import Edit, Finding
from fsdplint.engine.check import CheckedProgram
from fsdplint.engine.examine import examine
from fsdplint.engine.migrator import migration_rules
from fsdplint.engine.validation import without_harmful_fixes
from fsdplint.engine.workspace import Workspace
from fsdplint.migration.planner import plans_of

VALIDATED = {
    "FSDP201-fact-changed",
    "FSDP201-error-brought",
    "FSDP201-error-turned",
    "FSDP201-use-left",
}


@functools.cache
def checked(fixture: str) -> CheckedProgram:
    return examine(Workspace([projects()[0] / fixture]), [rule() for rule in migration_rules()])


def offered(fixture: str, edits: Edits) -> list[Finding]:
    """The findings of a fixture, tried with another text as their rewrite."""
    before = checked(fixture)
    (source,) = before.program.sources.values()
    text = after(Path(fixture))
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    edit = Edit(source.path, 0, len(source.text), text)
    for plan in plans_of(before.program):
        plan.blockers = []
    found = [
        replace(one, fix=one.fix and replace(one.fix, edits=(edit,), imports=()))
        for one in before.found
    ]
    rules = [rule() for rule in migration_rules()]
    workspace = Workspace([projects()[0] / fixture])
    return without_harmful_fixes(workspace, replace(before, found=found), rules).found


def blockers(fixture: str) -> dict[str, str]:
    return {
        one.code: one.reason for plan in plans_of(checked(fixture).program) for one in plan.blockers
    }


def is_offered(found: Iterable[Finding]) -> bool:
    return any(one.fix is not None for one in found)


@pytest.mark.parametrize("fixture", sorted({fixture for fixture, _ in WRONG.values()}))
def test_the_right_rewrite_is_offered(fixture: str) -> None:
    assert is_offered(offered(fixture, ()))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rewrite_is_not_offered(name: str) -> None:
    fixture, edits = WRONG[name]
    assert not is_offered(offered(fixture, edits))
    assert blockers(fixture).keys() <= VALIDATED, blockers(fixture)

"""What the documentation asks for, rule by rule, and the page that says so.

`UPDATE_DOCS=1` writes the table of `docs/contract.md`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from documented_contract import _HEAD, FOUND, GAPS, RUN, SILENT, Gap
from two_ranks import TwoRanks

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.example_files import examples_of
from fsdplint.registry.examples import Bad, markers, without_markers
from fsdplint.registry.rules import all_rules, rule_by_code

PAGE = Path(__file__).parents[2] / "docs" / "contract.md"
START, END = "<!-- contract -->\n", "\n<!-- /contract -->"


def example(name: str) -> Bad:
    code, _, title = name.partition("/")
    rule = rule_by_code(code)
    assert rule is not None
    return next(one for one in examples_of(rule).bad if one.name == title)


@pytest.mark.parametrize("name", sorted(set(FOUND.values())))
def test_a_rule_finds_the_violation(name: str, tmp_path: Path) -> None:
    code, bad = name.partition("/")[0], example(name)
    path = tmp_path / f"program{bad.suffix}"
    path.write_text(without_markers(bad.code), encoding="utf-8")
    rule = rule_by_code(code)
    assert rule is not None
    found = {f.site.location().line for f in check(load([path]), [rule()])}
    assert found == {line for line, marked in markers(bad.code) if marked == code}


@pytest.mark.parametrize("name", RUN.values())
def test_only_a_run_finds_the_violation(name: str) -> None:
    assert example(name).symptom is not None


gaps = pytest.mark.parametrize("gap", GAPS, ids=[gap.requirement for gap in GAPS])


@gaps
def test_no_rule_finds_a_gap(gap: Gap, tmp_path: Path) -> None:
    """A gap that is closed moves to `FOUND`."""
    path = tmp_path / "program.py"
    path.write_text(_HEAD + gap.program, encoding="utf-8")
    assert not [f.rule.code for f in check(load([path]), [rule() for rule in all_rules()])]


@gaps
def test_a_gap_fails_on_two_ranks(gap: Gap, two_ranks: TwoRanks) -> None:
    outcome = two_ranks.run(_HEAD + gap.program)
    if gap.shows:
        assert re.search(gap.shows, outcome.error + outcome.stdout), str(outcome)
    else:
        assert outcome.stuck, str(outcome)


def test_nine_of_ten_violations_that_fail_are_found() -> None:
    found = len(FOUND) + len(RUN)
    assert found >= 0.9 * (found + len(GAPS))
    requirements = [*FOUND, *RUN, *SILENT, *(gap.requirement for gap in GAPS)]
    assert len(set(requirements)) == len(requirements) >= 91


def test_the_table_is_up_to_date() -> None:
    rows = [
        *((text, f"{name[:7]}, `{name[8:]}`") for text, name in FOUND.items()),
        *((text, f"{name[:7]} of `fsdplint run`") for text, name in RUN.items()),
        *((gap.requirement, f"no rule: {gap.reason}") for gap in GAPS),
        *((text, f"no rule: {reason}") for text, reason in SILENT.items()),
    ]
    lines = ["| Requirement | Found by |", "| --- | --- |"]
    lines += [f"| {text} | {found} |" for text, found in rows]
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(START)
    wanted = before + START + "\n".join(lines) + END + rest.split(END)[1]
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert page == wanted, "UPDATE_DOCS=1 pytest tests/rules/test_documented_contract.py writes it"

"""The rules know what the examples do on other versions of torch (`rule_versions.tsv`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from rule_versions import MEANINGS, Difference, read_table

from fsdplint.config.options import Options
from fsdplint.config.target_torch import explicit
from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.example_files import examples_of
from fsdplint.registry.examples import Bad, Good, without_markers
from fsdplint.registry.rules import all_rules

ROWS = read_table()
RULES = {kind.code: kind for kind in all_rules()}


def of_meaning(meaning: str) -> pytest.MarkDecorator:
    rows = [row for row in ROWS if row.meaning == meaning]
    cases = [pytest.param(row, id="-".join(row.key)) for row in rows]
    return pytest.mark.parametrize("row", cases)


def example_of(row: Difference) -> Bad | Good:
    examples = examples_of(RULES[row.rule])
    return next(one for one in (*examples.bad, *examples.good) if one.name == row.example)


def test_each_difference_is_about_an_example_and_has_a_meaning() -> None:
    known = {
        (code, example.name)
        for code, kind in RULES.items()
        for example in (*examples_of(kind).bad, *examples_of(kind).good)
    }
    assert {(row.rule, row.example) for row in ROWS} <= known
    assert {row.meaning for row in ROWS} <= {*MEANINGS}
    assert len({row.key for row in ROWS}) == len(ROWS)


@of_meaning("no defect")
def test_a_rule_is_silent_where_its_defect_does_not_show(row: Difference, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(without_markers(example_of(row).code), encoding="utf-8")
    rule = RULES[row.rule]()
    assert check(load([path]), [rule], Options(explicit(row.torch))) == []


@of_meaning("fix without effect")
def test_a_fix_without_effect_is_not_offered(row: Difference, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(without_markers(example_of(row).code), encoding="utf-8")
    found = check(load([path]), [RULES[row.rule]()], Options(explicit(row.torch)))
    assert found
    assert not any(one.fix for one in found)


@of_meaning("defect there")
def test_a_defect_of_one_version_is_found_for_it(row: Difference, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(without_markers(example_of(row).code), encoding="utf-8")
    rule = RULES[row.rule]()
    assert check(load([path]), [rule], Options(explicit(row.torch)))
    assert not check(load([path]), [rule])

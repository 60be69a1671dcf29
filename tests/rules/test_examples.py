"""The examples of every rule: checked by the interpreter, fixed, and run on two ranks.

The programs are files in `fixtures/rules`; this file only says what must hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from two_ranks import Outcome, TwoRanks

from fsdplint.config.options import Options
from fsdplint.config.target_torch import explicit
from fsdplint.diagnostics.finding import Finding, Safety
from fsdplint.engine.check import check
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.registry.example_files import examples_of, read_file, read_folder
from fsdplint.registry.examples import Bad, Good, markers, without_markers
from fsdplint.registry.rule import Rule
from fsdplint.registry.rules import all_rules

RULES = [rule() for rule in all_rules()]

# What these rules say of a program is that it uses FSDP1 at all: examples of other rules may.
# FSDP208 shares their fixes and is about FSDP2 models.
MIGRATION = {rule.code for rule in RULES if rule.grouped} - {"FSDP208"}


def bad_examples() -> Iterator[object]:
    for rule in RULES:
        for example in examples_of(type(rule)).bad:
            yield pytest.param(rule, example, id=f"{rule.code}-{example.name}")


def examples_to_fix(fixable: bool) -> Iterator[object]:
    for rule in RULES:
        for example in examples_of(type(rule)).bad:
            if (example.fixed is not None) is fixable:
                yield pytest.param(rule, example, id=f"{rule.code}-{example.name}")


def good_examples() -> Iterator[object]:
    for rule in RULES:
        for example in examples_of(type(rule)).good:
            yield pytest.param(rule, example, id=f"{rule.code}-{example.name}")


bad = pytest.mark.parametrize(("rule", "example"), list(bad_examples()))
fixed = pytest.mark.parametrize(("rule", "example"), list(examples_to_fix(True)))
unfixed = pytest.mark.parametrize(("rule", "example"), list(examples_to_fix(False)))
good = pytest.mark.parametrize(("rule", "example"), list(good_examples()))


# All examples are checked, and some of each rule are also fixed and run: `--full-matrix` does that
# with the others.
one_of_each_rule = pytest.mark.sampled(
    1, by=lambda case: (case["rule"].code, bool(case["example"].skip))
)


def written(folder: Path, example: Bad | Good) -> Path:
    path = folder / f"program{example.suffix}"
    path.write_text(without_markers(example.code), encoding="utf-8")
    return path


def others(found: set[tuple[int, str]], rule: Rule) -> set[tuple[int, str]]:
    """Findings without those that say no more than that FSDP1 is used."""
    if rule.code in MIGRATION:
        return found
    return {(line, code) for line, code in found if code not in MIGRATION}


def static(path: Path, example: Bad | Good) -> list[Finding]:
    return check(load([path]), RULES, options(example))


def lines(found: list[Finding], rule: Rule) -> set[tuple[int, str]]:
    return others({(f.site.location().line, f.rule.code) for f in found}, rule)


# The form of a rule ------------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.code) for rule in RULES])
def test_a_rule_is_documented_and_has_examples(rule: Rule) -> None:
    page = rule.__doc__ or ""
    titles = re.findall(r"^ {4}## (.+)$", page, re.MULTILINE)
    expected = ["What it does", "Why is this bad?", "Fix safety", "Since", "References"]
    if rule.fixable is None:
        expected.remove("Fix safety")
    assert titles == expected
    assert re.fullmatch(r"FSDP\d{3}", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    examples = examples_of(type(rule))
    assert len(examples.bad) >= 2
    assert len(examples.good) >= (2 if rule.grouped else 3)
    assert (rule.fixable is None) == all(example.fixed is None for example in examples.bad)


@pytest.mark.whole
@bad
def test_a_bad_example_says_what_it_shows(rule: Rule, example: Bad) -> None:
    assert any(code == rule.code for _, code in markers(example.code))
    assert example.symptom is not None or example.skip
    if example.fixed is not None:
        assert without_markers(example.fixed) != without_markers(example.code)
        assert example.healthy or example.skip


def options(example: Bad | Good) -> Options:
    return Options(explicit(example.target_torch))


# The files ---------------------------------------------------------------------------------------

FILES = sorted((Path(__file__).parents[2] / "fixtures" / "rules").glob("*/*"))


def test_every_file_belongs_to_a_rule() -> None:
    own = {rule.code for rule in RULES}
    assert {path.parent.name for path in FILES} == own
    assert len(FILES) == sum(
        len(examples.bad) + len(examples.good) + sum(one.fixed is not None for one in examples.bad)
        for examples in (examples_of(type(rule)) for rule in RULES)
    )


@pytest.mark.whole
@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.code) for rule in RULES])
def test_a_rule_has_names_of_one_meaning_and_examples_for_its_page(rule: Rule) -> None:
    files = read_folder(Path(__file__).parents[2] / "fixtures" / "rules" / rule.code)
    names = [file.name for file in files if file.kind != "fixed"]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", name) for name in names)
    assert [file.kind for file in files if file.flag("page")] in (["bad", "good"], ["good", "bad"])


def test_a_header_says_how_its_file_is_run() -> None:
    for path in FILES:
        command = f"torchrun --nproc-per-node 2 fixtures/rules/{path.parent.name}/{path.name}"
        assert read_file(path).get("run") == (command if path.suffix == ".py" else None), path


# Static ------------------------------------------------------------------------------------------


@pytest.mark.whole
@bad
def test_the_marked_lines_are_found(rule: Rule, example: Bad, tmp_path: Path) -> None:
    """A finding says whether it depends on a configuration.

    Of a rule or an example that only a real run shows, nothing is found without one.
    """
    found = static(written(tmp_path, example), example)
    if example.runtime_only:
        assert lines(found, rule) == set()
        return
    unseen = {one.code for one in RULES if one.runtime_only}
    assert lines(found, rule) == {
        (line, code) for line, code in markers(example.code) if code not in unseen
    }
    own = [one for one in found if one.rule is type(rule)]
    assert all(one.message for one in own)
    assert {bool(one.configuration) for one in own} <= {example.config_dependent}


@one_of_each_rule
@fixed
def test_the_fix_gives_the_fixed_text(rule: Rule, example: Bad, tmp_path: Path) -> None:
    assert example.fixed is not None
    path = written(tmp_path, example)
    result = fix(Workspace([path], unsafe=True, options=options(example)), [rule])
    wanted = without_markers(example.fixed)
    assert result.texts.get(path) == wanted
    again = fix(
        Workspace([path], unsafe=True, overrides={path: wanted}, options=options(example)), [rule]
    )
    assert again.texts == {}


@pytest.mark.sampled(40)
@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.code) for rule in RULES])
def test_fixes_have_the_safety_that_the_rule_names(rule: Rule, tmp_path: Path) -> None:
    """A rule that names SAFE may have unsafe fixes in some cases, one that names UNSAFE no safe one."""
    seen = set()
    for example in examples_of(type(rule)).bad:
        if example.fixed is not None:
            found = check(load([written(tmp_path, example)]), [rule], options(example))
            fixes = [f.fix for f in found if f.fix is not None]
            assert fixes
            seen |= {one.safety for one in fixes}
    assert rule.fixable in seen if seen else rule.fixable is None
    assert rule.fixable is Safety.SAFE or Safety.SAFE not in seen


@pytest.mark.sampled(60)
@unfixed
def test_what_has_no_fixed_text_is_not_touched(rule: Rule, example: Bad, tmp_path: Path) -> None:
    path = written(tmp_path, example)
    assert fix(Workspace([path], unsafe=True, options=options(example)), [rule]).texts == {}


@pytest.mark.whole
@good
def test_a_good_example_is_silent(rule: Rule, example: Good, tmp_path: Path) -> None:
    assert lines(static(written(tmp_path, example), example), rule) == set()


# On two ranks ------------------------------------------------------------------------------------


def recorded(outcome: Outcome, rule: Rule, example: Bad | Good) -> set[tuple[int, str]]:
    trace = outcome.trace
    trace.target = explicit(example.target_torch)
    found = {
        (finding.site.location().line, one.code) for one in RULES for finding in one.check(trace)
    }
    return others(found, rule)


@pytest.mark.sampled(70)
@bad
def test_the_symptom_shows_and_the_record_has_the_finding(
    rule: Rule, example: Bad, two_ranks: TwoRanks
) -> None:
    if example.skip:
        pytest.skip(example.skip)
    assert example.symptom is not None
    outcome = two_ranks.run(without_markers(example.code))
    assert outcome.shows(example.symptom), str(outcome)
    wanted = markers(example.code)
    found = recorded(outcome, rule, example)
    if rule.static_only or example.check_only:
        assert found == set(), str(outcome)
    elif outcome.status == "ok":
        assert found == wanted, str(outcome)
    else:  # it ended at the first one, so that others may not have been reached
        assert found <= wanted, str(outcome)
        assert any(code == rule.code for _, code in found), str(outcome)


@pytest.mark.sampled(30)
@fixed
def test_the_fixed_program_is_healthy(rule: Rule, example: Bad, two_ranks: TwoRanks) -> None:
    if example.skip:
        pytest.skip(example.skip)
    assert example.fixed is not None and example.healthy is not None
    outcome = two_ranks.run(without_markers(example.fixed))
    assert outcome.status == "ok", str(outcome)
    assert re.search(example.healthy, outcome.stdout, re.MULTILINE), str(outcome)
    assert not {code for _, code in recorded(outcome, rule, example)} & {rule.code}


@pytest.mark.sampled(40)
@good
def test_a_good_example_runs_and_its_record_is_silent(
    rule: Rule, example: Good, two_ranks: TwoRanks
) -> None:
    if example.skip:
        pytest.skip(example.skip)
    outcome = two_ranks.run(without_markers(example.code))
    assert outcome.status == "ok", str(outcome)
    assert recorded(outcome, rule, example) == set(), str(outcome)

"""The verdict on each fix."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.interpreter import load
from fsdplint.registry.example_files import examples_of
from fsdplint.registry.examples import without_markers
from fsdplint.registry.rule import Rule
from fsdplint.registry.rules import all_rules
from fsdplint.runtime.proof.evidence import LineMap
from fsdplint.runtime.proof.runs import initial_weights_reason
from fsdplint.runtime.proof.verdicts import Evidence, Verdict
from fsdplint.trace import Collective, FixedSite, Location, Trace

pytestmark = pytest.mark.whole


class NoBarrier(Rule):
    """No barriers, please."""

    code = "TEST001"
    name = "no-barrier"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterable[Finding]:
        return [self.finding(e, "a barrier") for e in trace.of(Collective) if e.api == "barrier"]


BEFORE = "import x\n\nbarrier()\nreduce()\nbarrier()\n"
AFTER = "import x\nimport y\n\nreduce()\nbarrier()\n"


def trace(path: Path, *events: tuple[str, int]) -> Trace:
    result = Trace(producer="runtime")
    for api, line in events:
        result.add(Collective(site=FixedSite(Location(str(path), line)), api=api))
    return result


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "train.py"
    path.write_text(BEFORE)
    return path


def finding(path: Path, line: int, group: str | None = None) -> Finding:
    return Finding(NoBarrier, FixedSite(Location(str(path), line)), "a barrier", group=group)


def judge(
    script: Path,
    applied: list[Finding],
    overall: Verdict = Verdict.PROVEN,
    before: tuple[tuple[str, int], ...] = (("barrier", 3), ("reduce", 4), ("barrier", 5)),
    after: tuple[tuple[str, int], ...] = (("reduce", 4),),
    reached: tuple[int, ...] = (3, 5),
    failing: tuple[int, ...] = (),
) -> list[Verdict]:
    evidence = Evidence.of(
        applied,
        (overall, ["because"]),
        {(str(script), line) for line in reached},
        [(trace(script, *before), trace(script, *after))],
        {script: (BEFORE, AFTER)},
        failing={(str(script), line) for line in failing},
    )
    return [evidence.judge(one).verdict for one in applied]


def test_proven_where_the_rule_fired_and_no_longer_does(script: Path) -> None:
    assert judge(script, [finding(script, 3)]) == [Verdict.PROVEN]


def test_refuted_where_the_rule_still_fires_there(script: Path) -> None:
    # Line 5 of the original is line 5 of the fixed text too; line 3 is gone.
    found = judge(script, [finding(script, 3), finding(script, 5)], after=(("barrier", 5),))
    assert found == [Verdict.PROVEN, Verdict.REFUTED]


def test_refuted_with_the_whole(script: Path) -> None:
    assert judge(script, [finding(script, 3)], Verdict.REFUTED) == [Verdict.REFUTED]


def test_not_reached(script: Path) -> None:
    assert judge(script, [finding(script, 3)], before=(), reached=()) == [Verdict.NOT_REACHED]


def test_a_line_that_ran_without_the_rule_firing_is_no_proof(script: Path) -> None:
    alone = finding(script, 3)
    assert judge(script, [alone], before=(("reduce", 4),)) == [Verdict.NOT_REACHED]


def test_a_migration_is_proven_as_a_whole(script: Path) -> None:
    group = [finding(script, 3, "net"), finding(script, 5, "net")]
    assert judge(script, group, before=(("barrier", 3),)) == [Verdict.PROVEN] * 2
    assert judge(script, group, before=()) == [Verdict.NOT_REACHED] * 2


def test_not_comparable(script: Path) -> None:
    assert judge(script, [finding(script, 3)], Verdict.NOT_COMPARABLE) == [Verdict.NOT_COMPARABLE]


def test_refuted_where_the_program_still_fails(script: Path) -> None:
    fixes = [finding(script, 4), finding(script, 5)]
    found = judge(script, fixes, Verdict.NOT_COMPARABLE, failing=(4,), reached=(4, 5))
    assert found == [Verdict.REFUTED, Verdict.NOT_COMPARABLE]


def test_models_of_weights_of_all_ranks_do_not_start_alike(tmp_path: Path) -> None:
    rule = next(rule for rule in all_rules() if rule.code == "FSDP308")
    (mixed, *_), script = examples_of(rule).bad, tmp_path / "train.py"
    script.write_text(without_markers(mixed.code))
    (before, *_) = load([script]).traces
    assert "FSDP308 at train.py:14, every rank initialises" in initial_weights_reason(
        before, before
    )
    script.write_text(mixed.fixed or "")
    (after, *_) = load([script]).traces
    assert initial_weights_reason(before, after) == ""


def test_where_lines_go(script: Path) -> None:
    moved = LineMap({script: (BEFORE, AFTER)})
    assert moved.after((str(script), 4)) == (str(script), 4)
    assert moved.after((str(script), 3)) is None
    assert moved.after(("/elsewhere.py", 7)) == ("/elsewhere.py", 7)

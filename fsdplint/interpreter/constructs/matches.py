"""`match`: each case is a test of the subject."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.assignment import assign
from fsdplint.interpreter.branch_conditions import (
    FALSE,
    TRUE,
    Truth,
    Verdict,
    decide,
    truth,
    truth_of,
)
from fsdplint.interpreter.constructs.branches import branch
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.object_comparison import NEVER_NONE
from fsdplint.interpreter.rank_tests import compare_rank
from fsdplint.interpreter.run import Run, executes
from fsdplint.interpreter.signals import Signal, terminates
from fsdplint.interpreter.torch_values import RankTest, RankValue
from fsdplint.interpreter.values import Condition, Const, Symbol, Unknown, Value


@executes(cst.Match)
def execute_match(run: Run, node: cst.Match) -> Signal | None:
    return _cases(run, node, run.eval(node.subject), 0)


def _cases(run: Run, node: cst.Match, subject: Value, number: int) -> Signal | None:
    """Execute the cases from the case `number` on."""
    if number == len(node.cases):
        return None
    case = node.cases[number]
    verdict = _matches(run, node, subject, case.pattern, number)
    if case.guard is not None and verdict.outcome is not Truth.FALSE:
        verdict = _with_guard(verdict, truth(run, case.guard))
    return branch(
        run,
        node.subject,
        verdict,
        lambda: run.execute_suite(case.body),
        lambda: _cases(run, node, subject, number + 1),
        terminates(case.body) if isinstance(subject, Condition) else None,
    )


def _with_guard(pattern: Verdict, guard: Verdict) -> Verdict:
    """The verdict of a case with a pattern and a guard."""
    guards = [*pattern.guards, *guard.guards]
    if pattern.outcome is Truth.TRUE:
        return Verdict(guard.outcome, guards, guard.rank_test)
    if guard.outcome is Truth.TRUE:
        return Verdict(pattern.outcome, guards, pattern.rank_test)
    return Verdict(Truth.FALSE if guard.outcome is Truth.FALSE else Truth.VARYING, guards)


def _matches(
    run: Run, node: cst.Match, subject: Value, pattern: cst.MatchPattern, number: int
) -> Verdict:
    """Whether the subject matches a pattern of the case `number`. Binds the names in it."""
    if isinstance(pattern, cst.MatchAs):
        if pattern.name is not None:
            assign(run, pattern.name, subject)
        if pattern.pattern is None:
            return TRUE
        return _matches(run, node, subject, pattern.pattern, number)
    if isinstance(pattern, cst.MatchOr):
        return _matches_any(run, node, subject, pattern, number)
    if isinstance(pattern, cst.MatchValue):
        return _equals(run, node, subject, run.eval(pattern.value), number)
    if isinstance(pattern, cst.MatchSingleton):
        return _is(run, node, subject, run.eval(pattern.value), number)
    if isinstance(pattern, cst.MatchClass) and not (pattern.patterns or pattern.kwds):
        call = Call(pattern.cls, [subject, run.eval(pattern.cls)])
        return truth_of(run, run.call(Symbol("builtins.isinstance"), call), node.subject, True)
    return _equals(run, node, subject, Unknown(), number)


def _matches_any(
    run: Run, node: cst.Match, subject: Value, pattern: cst.MatchOr, number: int
) -> Verdict:
    guards = []
    for one in pattern.patterns:
        verdict = _matches(run, node, subject, one.pattern, number)
        if verdict.outcome is not Truth.FALSE:
            return verdict
        guards += verdict.guards
    return Verdict(Truth.FALSE, guards)


def _is(run: Run, node: cst.Match, subject: Value, singleton: Value, number: int) -> Verdict:
    """`case None`, `case True`, `case False`."""
    value = singleton.value if isinstance(singleton, Const) else None
    if isinstance(subject, Const):
        return TRUE if subject.value is value else FALSE
    if value is not None:
        verdict = truth_of(run, subject, node.subject, value is True)
        return verdict if value else verdict.negate()
    if isinstance(subject, NEVER_NONE):
        return FALSE
    text = run.text(node.subject)
    origin = (subject.origin if isinstance(subject, Unknown) else "") or text
    condition = Condition(f"{origin} is None", f"{text} is None", False, origin, "is None")
    return _decide(run, node, subject, condition)


def _equals(run: Run, node: cst.Match, subject: Value, value: Value, number: int) -> Verdict:
    if isinstance(subject, Const) and isinstance(value, Const):
        return TRUE if subject.value == value.value else FALSE
    if isinstance(subject, RankValue) and isinstance(value, Const):
        test = compare_rank(subject, cst.Equal(), value)
        return Verdict(Truth.RANK, [], test) if isinstance(test, RankTest) else TRUE
    text = run.text(node.subject)
    origin = (subject.origin if isinstance(subject, Unknown) else "") or text
    operand = value.value if isinstance(value, Const) else number
    condition = Condition(
        f"{origin} == {operand!r}", f"{text} == {operand!r}", False, origin, "==", operand
    )
    return _decide(run, node, subject, condition)


def _decide(run: Run, node: cst.Match, subject: Value, condition: Condition) -> Verdict:
    if isinstance(subject, Unknown) and subject.varying:
        return Verdict(Truth.VARYING)
    return decide(run, condition, node.subject, True)

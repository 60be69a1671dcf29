"""`match`: each case is a test of the subject."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.assignment import assign
from fsdplint.interpreter.attributes import read_attribute
from fsdplint.interpreter.branch_conditions import (
    FALSE,
    TRUE,
    Truth,
    Verdict,
    decide,
    truth,
    truth_of,
)
from fsdplint.interpreter.constructs.branches import execute_fork
from fsdplint.interpreter.dispatch import executes
from fsdplint.interpreter.forks import Fork
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.object_comparison import NEVER_NONE
from fsdplint.interpreter.rank_tests import compare_rank
from fsdplint.interpreter.records import (
    as_tuple,
    dataclass_fields,
    is_named_tuple,
    tuple_fields,
)
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.signals import Signal, terminates
from fsdplint.interpreter.torch_values import RankTest, RankValue
from fsdplint.interpreter.values import (
    Class,
    Condition,
    Const,
    Dict,
    Instance,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
)


@dataclass(frozen=True)
class Subject:
    """What a pattern is compared with: the subject of the `match` or a part of it, and its text."""

    value: Value
    text: str

    @property
    def origin(self) -> str:
        return (self.value.origin if isinstance(self.value, Unknown) else "") or self.text


@dataclass(frozen=True)
class Case:
    """A case of a `match`.

    Attributes:
        statement: the `match`.
        prefer: the outcome with which the program continues.
    """

    statement: cst.Match
    prefer: bool = True


@executes(cst.Match)
def execute_match(run: Run, node: cst.Match) -> Signal | None:
    return _cases(run, node, Subject(run.eval(node.subject), run.text(node.subject)), 0)


def _cases(run: Run, node: cst.Match, subject: Subject, number: int) -> Signal | None:
    """Execute the cases from the case `number` on."""
    if number == len(node.cases):
        return None
    held, *rest = node.cases[number:]
    other_ends = terminates(rest[0].body) if rest and _is_irrefutable(rest[0]) else None
    code = [node.subject, held, *rest]
    fork = Fork(held, node.subject, code, held.body, rest, terminates(held.body), other_ends)
    case = Case(node, fork.prefer)
    with fork.leaving(run):
        verdict = _matches(run, case, subject, held.pattern)
        if held.guard is not None and verdict.outcome is not Truth.FALSE:
            verdict = _with_guard(verdict, truth(run, held.guard, fork.prefer))
    return execute_fork(
        run,
        fork,
        verdict,
        lambda: run.execute_suite(held.body),
        lambda: _cases(run, node, subject, number + 1),
    )


def _is_irrefutable(case: cst.MatchCase) -> bool:
    """Whether a case matches any subject."""
    pattern = case.pattern
    return isinstance(pattern, cst.MatchAs) and pattern.pattern is None and case.guard is None


def _with_guard(pattern: Verdict, guard: Verdict) -> Verdict:
    """The verdict of a case with a pattern and a guard."""
    guards = [*pattern.guards, *guard.guards]
    if pattern.outcome is Truth.TRUE:
        return Verdict(guard.outcome, guards, guard.rank_test)
    if guard.outcome is Truth.TRUE:
        return Verdict(pattern.outcome, guards, pattern.rank_test)
    return Verdict(Truth.FALSE if guard.outcome is Truth.FALSE else Truth.VARYING, guards)


def _matches(run: Run, case: Case, subject: Subject, pattern: cst.MatchPattern) -> Verdict:
    """Whether the subject matches a pattern of a case. Binds the names in it."""
    if isinstance(pattern, cst.MatchAs):
        if pattern.name is not None:
            assign(run, pattern.name, subject.value)
        if pattern.pattern is None:
            return TRUE
        return _matches(run, case, subject, pattern.pattern)
    if isinstance(pattern, cst.MatchOr):
        return _matches_any(run, case, subject, pattern)
    if isinstance(pattern, cst.MatchValue):
        return _equals(run, case, subject, pattern, run.eval(pattern.value))
    if isinstance(pattern, cst.MatchSingleton):
        return _match_singleton(run, case, subject, run.eval(pattern.value))
    if isinstance(pattern, cst.MatchClass):
        return _is_object(run, case, subject, pattern)
    parts = _elements(run, subject, pattern)
    if parts is not None:
        return _all_match(run, case, parts)
    return _may_match(run, case, subject, pattern)


def _is_object(run: Run, case: Case, subject: Subject, pattern: cst.MatchClass) -> Verdict:
    """`case Point(x, y=0)`: an object of the class whose attributes match."""
    klass = run.settle(run.eval(pattern.cls))
    call = Call(pattern.cls, [subject.value, klass])
    whole = truth_of(
        run, run.call(Symbol("builtins.isinstance"), call), case.statement.subject, True
    )
    value = run.settle(subject.value)
    if whole.outcome is Truth.FALSE or not (pattern.patterns or pattern.kwds):
        return whole
    names = _positional_names(run, klass)
    if not isinstance(value, Instance) or len(pattern.patterns) > len(names):
        return _may_match(run, case, subject, pattern)
    given = [(name, one.value) for name, one in zip(names, pattern.patterns, strict=False)]
    given += [(one.key.value, one.pattern) for one in pattern.kwds]
    parts = [
        (Subject(read_attribute(run, value, name, pattern), f"{subject.text}.{name}"), one)
        for name, one in given
    ]
    return _with_guard(whole, _all_match(run, case, parts))


def _positional_names(run: Run, klass: Value) -> list[str]:
    """The attributes that the patterns by position of a class stand for."""
    if not isinstance(klass, Class):
        return []
    if is_named_tuple(klass):
        return tuple_fields(klass)
    named = run.settle(klass.lookup("__match_args__") or Unknown())
    if isinstance(named, Sequence):
        return [str(constant(run.settle(item))) for item in named.items]
    return dataclass_fields(run, klass) if klass.dataclass else []


def _elements(
    run: Run, subject: Subject, pattern: cst.MatchPattern
) -> list[tuple[Subject, cst.MatchPattern]] | None:
    """The elements of a list, tuple or dict with their patterns; None if they are not known."""
    value = run.settle(subject.value)
    if isinstance(pattern, cst.MatchList | cst.MatchTuple):
        held = as_tuple(value) or value
        inner = [one.value for one in pattern.patterns if isinstance(one, cst.MatchSequenceElement)]
        if not isinstance(held, Sequence) or held.open or len(inner) != len(held.items):
            return None
        if len(inner) != len(pattern.patterns):
            return None  # with a star
        return [
            (Subject(item, f"{subject.text}[{at}]"), one)
            for at, (item, one) in enumerate(zip(held.items, inner, strict=True))
        ]
    if isinstance(pattern, cst.MatchMapping) and isinstance(value, Dict) and pattern.rest is None:
        keys = [constant(run.eval(one.key)) for one in pattern.elements]
        if not all(isinstance(key, str | int) and key in value.items for key in keys):
            return None
        return [
            (Subject(value.items[key], f"{subject.text}[{key!r}]"), one.pattern)
            for key, one in zip(keys, pattern.elements, strict=True)
        ]
    return None


def _all_match(run: Run, case: Case, parts: list[tuple[Subject, cst.MatchPattern]]) -> Verdict:
    verdict = TRUE
    for subject, pattern in parts:
        if verdict.outcome is not Truth.FALSE:
            verdict = _with_guard(verdict, _matches(run, case, subject, pattern))
    return verdict


def _matches_any(run: Run, case: Case, subject: Subject, pattern: cst.MatchOr) -> Verdict:
    guards = []
    for one in pattern.patterns:
        verdict = _matches(run, case, subject, one.pattern)
        if verdict.outcome is not Truth.FALSE:
            return verdict
        guards += verdict.guards
    return Verdict(Truth.FALSE, guards)


def _match_singleton(run: Run, case: Case, subject: Subject, singleton: Value) -> Verdict:
    """`case None`, `case True`, `case False`."""
    value = singleton.value if isinstance(singleton, Const) else None
    if isinstance(subject.value, Const):
        return TRUE if subject.value.value is value else FALSE
    if value is not None:
        verdict = truth_of(run, subject.value, case.statement.subject, value is True)
        return verdict if value else verdict.negate()
    if isinstance(subject.value, NEVER_NONE):
        return FALSE
    text, origin = subject.text, subject.origin
    condition = Condition(f"{origin} is None", f"{text} is None", False, origin, "is None")
    return _decide(run, case, subject, condition)


def _equals(
    run: Run, case: Case, subject: Subject, pattern: cst.MatchValue, value: Value
) -> Verdict:
    if not isinstance(value, Const):
        return _may_match(run, case, subject, pattern)
    if isinstance(subject.value, Const):
        return TRUE if subject.value.value == value.value else FALSE
    if isinstance(subject.value, RankValue):
        test = compare_rank(subject.value, cst.Equal(), value)
        return Verdict(Truth.RANK, [], test) if isinstance(test, RankTest) else TRUE
    origin, operand = subject.origin, value.value
    key, text = f"{origin} == {operand!r}", f"{subject.text} == {operand!r}"
    return _decide(run, case, subject, Condition(key, text, False, origin, "==", operand))


def _may_match(run: Run, case: Case, subject: Subject, pattern: cst.MatchPattern) -> Verdict:
    """The verdict of a pattern that cannot be followed."""
    code = run.text(pattern)
    condition = Condition(f"{subject.origin} matches {code}", f"{subject.text} matches {code}")
    return _decide(run, case, subject, condition)


def _decide(run: Run, case: Case, subject: Subject, condition: Condition) -> Verdict:
    if isinstance(subject.value, Unknown) and subject.value.varying:
        return Verdict(Truth.VARYING)
    return decide(run, condition, case.statement.subject, case.prefer)

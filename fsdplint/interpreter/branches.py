"""Branches: the sides that a test's verdict asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.interpreter.branch_conditions import (
    Outcome,
    Verdict,
    compare_rank,
    decide,
    rank_guard,
    truth,
    varying_guard,
)
from fsdplint.interpreter.values import Condition, Const, RankTest, RankValue, Unknown, Value

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Interpreter
from fsdplint.interpreter.signals import Signal, terminates, until


class Branches:
    """The part of the interpreter that executes `if` and `match`."""

    def execute_If(self: Interpreter, node: cst.If) -> Signal | None:
        ends = terminates(node.body)
        orelse = node.orelse
        other = orelse.body if isinstance(orelse, cst.Else) else None
        prefer = ends is None or terminates(other) is not None
        self.decisions.leaving = (ends is None) != (terminates(other) is None)
        verdict = truth(self, node.test, prefer)
        self.decisions.leaving = False
        self._note_branches(node, verdict)
        return self.branch(
            node.test,
            verdict,
            lambda: self.execute_suite(node.body),
            lambda: self._orelse(orelse),
            ends,
            terminates(other),
        )

    def _note_branches(self: Interpreter, node: cst.If, verdict: Verdict) -> None:
        """A decision is worth looking at both ways if either branch does something that counts."""
        if verdict.guards and self.project.words.stand_in(node):
            keys = [key for _, key in verdict.guards]
            self.decisions.relevant.update(keys)
            if self.project.fsdp_words.stand_in(node):
                self.decisions.urgent.update(keys)

    def _orelse(self: Interpreter, node: cst.If | cst.Else | None) -> Signal | None:
        if isinstance(node, cst.If):
            return self.execute_If(node)
        return self.execute_suite(node.body) if node is not None else None

    def branch(
        self: Interpreter,
        test: cst.BaseExpression,
        verdict: Verdict,
        then: Callable[[], Signal | None],
        orelse: Callable[[], Signal | None],
        then_ends: str | None = None,
        else_ends: str | None = None,
    ) -> Signal | None:
        """Execute the side or the sides of a branch that its test's verdict asks for."""
        if verdict.outcome is Outcome.RANK and verdict.rank_test is not None:
            return self._rank_branch(test, verdict, then, orelse)
        if verdict.outcome is Outcome.VARYING:
            with self.guarded([*verdict.guards, (varying_guard(self, test, False), "")]):
                one = orelse()
            with self.guarded([*verdict.guards, (varying_guard(self, test, True), "")]):
                two = then()
            if one is not None and two is not None:
                return two if two.kind == "return" else one
            for signal in (one, two):
                if signal is not None and signal.kind == "return" and signal.value is not None:
                    self.frames[-1].partial.append((None, signal.value))
            return None
        taken, skipped_ends = (
            (then, else_ends) if verdict.outcome is Outcome.TRUE else (orelse, then_ends)
        )
        with self.guarded(verdict.guards):
            signal = taken()
        leaves = skipped_ends in {"return", "break", "continue"}  # a failing check is no way to run
        if signal is None and leaves and skipped_ends is not None and verdict.guards:
            self.leave_guards(verdict.guards, until(skipped_ends))
        return signal

    def _rank_branch(
        self: Interpreter,
        test: cst.BaseExpression,
        verdict: Verdict,
        then: Callable[[], Signal | None],
        orelse: Callable[[], Signal | None],
    ) -> Signal | None:
        rank_test = verdict.rank_test
        assert rank_test is not None
        here = self.ranks()
        if here.partial and here is rank_test.true_on is not rank_test.false_on:
            return then()  # only the ranks for which the test holds come here
        if here.partial and here is rank_test.false_on is not rank_test.true_on:
            return orelse()
        yes = [*verdict.guards, (rank_guard(self, test, rank_test, True), "")]
        no = [*verdict.guards, (rank_guard(self, test, rank_test, False), "")]
        names = dict(self.scope.names)
        with self.guarded(yes):
            one = then()
        kept = {
            name: value
            for name, value in self.scope.names.items()
            if names.get(name) is not value and self.matters(value)
        }
        with self.guarded(no):
            two = orelse()
        for name, value in kept.items():
            if not self.matters(self.scope.names.get(name)):
                self.scope.names[name] = value
        if one is not None and two is not None:
            if one.kind == two.kind == "return":
                return Signal("return", self.join(rank_test, one.value, two.value))
            return one if one.kind == "return" else two
        for signal, rest, left in ((one, no, True), (two, yes, False)):
            if signal is not None:
                if signal.kind == "return" and signal.value is not None:
                    key = rank_test if left else RankTest(rank_test.false_on, rank_test.true_on)
                    self.frames[-1].partial.append((key, signal.value))
                if signal.kind != "raise":  # a check that fails, not ranks that part
                    self.leave_guards(rest, until(signal.kind))
        return None

    def execute_Match(self: Interpreter, node: cst.Match) -> Signal | None:
        subject = self.eval(node.subject)
        text = self.text(node.subject)
        for number, case in enumerate(node.cases):
            pattern = self._pattern(case.pattern)
            if isinstance(case.pattern, cst.MatchAs) and case.pattern.pattern is None:
                return self.execute_suite(case.body)
            if isinstance(subject, Const) and isinstance(pattern, Const):
                if subject.value == pattern.value:
                    return self.execute_suite(case.body)
                continue
            if isinstance(subject, RankValue) and isinstance(pattern, Const):
                return self._match_rank(node, subject, number)
            origin = subject.origin if isinstance(subject, Unknown) else text
            operand = pattern.value if isinstance(pattern, Const) else number
            key = f"{origin or text} == {operand!r}"
            condition = Condition(key, f"{text} == {operand!r}", False, origin, "==", operand)
            verdict = decide(self, condition, node.subject, True)
            if verdict.outcome is Outcome.TRUE:
                with self.guarded(verdict.guards):
                    return self.execute_suite(case.body)
        return None

    def _match_rank(
        self: Interpreter, node: cst.Match, rank: RankValue, number: int
    ) -> Signal | None:
        """The cases of `match rank` from one with a number on."""
        if number == len(node.cases):
            return None
        case = node.cases[number]
        pattern = self._pattern(case.pattern)
        test = compare_rank(rank, cst.Equal(), pattern) if isinstance(pattern, Const) else None
        if not isinstance(test, RankTest):
            return self.execute_suite(case.body)
        return self.branch(
            node.subject,
            Verdict(Outcome.RANK, [], test),
            lambda: self.execute_suite(case.body),
            lambda: self._match_rank(node, rank, number + 1),
        )

    def _pattern(self: Interpreter, pattern: cst.MatchPattern) -> Value:
        if isinstance(pattern, cst.MatchValue):
            return self.eval(pattern.value)
        return Unknown()

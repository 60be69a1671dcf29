"""`if` and other tests: the branches that the verdict selects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import libcst as cst

from fsdplint.interpreter.branch_conditions import (
    Truth,
    Verdict,
    placed,
    rank_guard,
    truth,
    varying_guard,
)
from fsdplint.interpreter.branch_sides import execute_sides
from fsdplint.interpreter.decided_values import deciding
from fsdplint.interpreter.dispatch import executes
from fsdplint.interpreter.forks import Fork
from fsdplint.interpreter.frames import TURN, GuardEntry
from fsdplint.interpreter.kept_constants import note_kept
from fsdplint.interpreter.merging import (
    join_by_data,
    join_by_rank,
    join_by_turn,
    join_returned,
)
from fsdplint.interpreter.mode_code import in_mode_of
from fsdplint.interpreter.narrowing import narrow
from fsdplint.interpreter.received_values import join_sides
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.signals import Signal, falls_to_raise, guard_end, terminates
from fsdplint.interpreter.skipped_reductions import doubt_own_data
from fsdplint.interpreter.torch_values import RankTest
from fsdplint.interpreter.values import Const, RankLocal, Value
from fsdplint.trace import Guard
from fsdplint.trace.predicates import is_truth, negated
from fsdplint.trace.predicates import truth as holds_under


@executes(cst.If)
def execute_if(run: Run, node: cst.If) -> Signal | None:
    return execute_test(run, node, terminates(node.body), lambda: run.execute_suite(node.body))


def execute_test(
    run: Run, node: cst.If | cst.While, ends: str | None, then: Callable[[], Signal | None]
) -> Signal | None:
    """Execute `then` if the test of a statement holds, and else its `else`.

    ends: how `then` certainly leaves the block, or None.
    """
    orelse = node.orelse
    other_ends = terminates(orelse.body if isinstance(orelse, cst.Else) else None)
    if ends == "return" and orelse is None and falls_to_raise(run.source, node):
        other_ends = "raise"
    rest = [orelse] if orelse is not None else []
    fork = Fork(node, node.test, [node], node.body, rest, ends, other_ends)

    with fork.leaving(run):
        verdict = truth(run, node.test, fork.prefer)
    if verdict.outcome is Truth.TRUE:
        narrow(run, node.test)
    return execute_fork(run, fork, verdict, then, lambda: _orelse(run, orelse))


def execute_fork(
    run: Run,
    fork: Fork,
    verdict: Verdict,
    then: Callable[[], Signal | None],
    orelse: Callable[[], Signal | None],
) -> Signal | None:
    """Execute one or both sides of a test with a verdict, and note what the search can try."""
    fork.note(run, verdict)
    skipped: Sequence[cst.CSTNode] = ()
    if verdict.guards and verdict.outcome in {Truth.TRUE, Truth.FALSE}:
        skipped = fork.rest if verdict.outcome is Truth.TRUE else [fork.body]
    for code in skipped:
        doubt_own_data(run, code)
    with deciding(run, verdict.keys):
        signal = branch(run, fork.test, verdict, then, orelse, fork.ends, fork.other_ends)
    if signal is None and not fork.leaves:
        for code in skipped:
            note_kept(run, code, verdict.keys)
    return signal


def _note_leaving(run: Run, *sides: tuple[Signal | None, list[tuple[Guard, str]]]) -> None:
    """Keep what a test implies after it, if one of its sides leaves the turn or the function."""
    leaving = [(signal, guards) for signal, guards in sides if signal is not None]
    if leaving and run.own_turns:
        run.own_turns[-1].left = True
    if len(leaving) == 1:
        signal, guards = leaving[0]
        fact = negated(guards[-1][0].predicate)
        # A program that goes on has passed each check, so a check that compares no numbers says
        # nothing about the order of what follows.
        if signal.kind != "raise" or not is_truth(fact):
            run.note_fact(fact)


def _orelse(run: Run, node: cst.If | cst.Else | None) -> Signal | None:
    if isinstance(node, cst.If):
        return execute_if(run, node)
    return run.execute_suite(node.body) if node is not None else None


def branch(
    run: Run,
    test: cst.BaseExpression,
    verdict: Verdict,
    then: Callable[[], Signal | None],
    orelse: Callable[[], Signal | None],
    then_ends: str | None = None,
    else_ends: str | None = None,
) -> Signal | None:
    """Execute one or both sides of a branch, depending on the verdict of its test."""
    if verdict.outcome is Truth.RANK and verdict.rank_test is not None:
        return _rank_branch(run, test, verdict, then, orelse)
    if verdict.local is not None:
        return _local_branch(run, test, verdict, then, orelse)
    if verdict.outcome is Truth.VARYING:
        predicate = verdict.predicate
        no = [*verdict.guards, (varying_guard(run, test, False, predicate=predicate), "")]
        yes = [*verdict.guards, (varying_guard(run, test, True, predicate=predicate), "")]
        sides = side_under_guards(run, no, orelse), side_under_guards(run, yes, then)
        one, two = execute_sides(run, *sides, partial(join_by_turn, test=predicate))
        _note_leaving(run, (one, no), (two, yes))
        if one is not None and two is not None:
            if one.kind == two.kind == "return":
                return Signal("return", join_returned(predicate, two.value, one.value))
            return two if two.kind == "return" else one
        for signal, holds in ((one, negated(predicate)), (two, predicate)):
            if signal is not None and signal.kind == "return" and signal.value is not None:
                run.frames[-1].partial.append((holds, signal.value))
        return None
    taken, skipped_ends = (
        (then, else_ends) if verdict.outcome is Truth.TRUE else (orelse, then_ends)
    )
    with run.under_guards(verdict.guards), in_mode_of(run, verdict.mode_of):
        signal = taken()
    leaves = skipped_ends in {"return", "break", "continue"}  # a failing check does not count
    if signal is None and leaves and skipped_ends is not None and verdict.guards:
        # A setting that ends a loop is the same in each turn: it shows nothing in later turns.
        run.leave_guards(
            verdict.guards, TURN if skipped_ends == "break" else guard_end(skipped_ends)
        )
    return signal


def choice_of_callee(node: cst.BaseExpression) -> cst.IfExp | None:
    """The conditional expression that chooses what a statement calls, or the object of a method.

    `(decay if p.ndim > 1 else other).append(p)` does what an `if` with the two calls does, if the
    arguments call nothing.
    """
    if not isinstance(node, cst.Call) or any(_calls_something(arg.value) for arg in node.args):
        return None
    callee = node.func.value if isinstance(node.func, cst.Attribute) else node.func
    return callee if isinstance(callee, cst.IfExp) else None


def execute_choice(run: Run, node: cst.BaseExpression, choice: cst.IfExp) -> Signal | None:
    """Execute the call with what each side of the conditional expression chooses."""

    def side(holds: bool) -> Callable[[], Signal | None]:
        def execute() -> None:
            outer = run.chosen_sides.get(choice)
            run.chosen_sides[choice] = holds
            run.eval(node)
            del run.chosen_sides[choice]
            if outer is not None:
                run.chosen_sides[choice] = outer

        return execute

    return branch(run, choice.test, truth(run, choice.test), side(True), side(False))


def _calls_something(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) or any(map(_calls_something, node.children))


def _rank_branch(
    run: Run,
    test: cst.BaseExpression,
    verdict: Verdict,
    then: Callable[[], Signal | None],
    orelse: Callable[[], Signal | None],
) -> Signal | None:
    rank_test = verdict.rank_test
    assert rank_test is not None
    here = run.ranks()
    if here.partial and here is rank_test.true_on is not rank_test.false_on:
        return then()  # only the ranks for which the test holds get here
    if here.partial and here is rank_test.false_on is not rank_test.true_on:
        return orelse()
    rank_test = placed(run, rank_test, test)
    where = verdict.diverges_where
    yes = [*verdict.guards, (rank_guard(run, test, rank_test, True, where), "")]
    no = [*verdict.guards, (rank_guard(run, test, rank_test, False, where), "")]
    one, two = execute_sides(
        run,
        side_under_guards(run, yes, then),
        side_under_guards(run, no, orelse),
        partial(join_sides, run, rank_test),
    )
    return _leave(
        run,
        _Side(one, no, rank_test),
        _Side(two, yes, rank_test.negate()),
        join=partial(join_by_rank, rank_test),
        diverges=lambda signal: not signal.fails,  # a failing check is no divergence of ranks
    )


@dataclass
class _Side:
    """One of two sides that both run: how control leaves it, the guards of the code after it that
    the other side alone reaches, and what the value depends on that it returns."""

    signal: Signal | None
    rest: list[tuple[Guard, str]]
    depends_on: RankTest | RankLocal


def _leave(
    run: Run,
    one: _Side,
    other: _Side,
    *,
    join: Callable[[Value, Value], Value],
    diverges: Callable[[Signal], bool],
) -> Signal | None:
    """How control leaves a branch of which both sides run.

    If one of them leaves, only the others reach what follows.
    """
    first, second = one.signal, other.signal
    if first is not None and second is not None:
        if first.kind == second.kind == "return":
            values = first.value or Const(None), second.value or Const(None)
            return Signal("return", join(*values))
        return first if first.kind == "return" else second
    for side in (one, other):
        signal = side.signal
        if signal is not None:
            if signal.kind == "return" and signal.value is not None:
                run.frames[-1].partial.append((side.depends_on, signal.value))
            if diverges(signal):
                run.leave_guards(side.rest, guard_end(signal.kind))
    return None


def side_under_guards(
    run: Run, guards: list[tuple[Guard, str]], side: Callable[[], Signal | None]
) -> Callable[[], Signal | None]:
    """A side of a branch that is executed under guards."""

    def execute() -> Signal | None:
        with run.without_guards(_excluded(run, guards)), run.under_guards(guards):
            return side()

    return execute


def _excluded(run: Run, guards: list[tuple[Guard, str]]) -> list[GuardEntry]:
    """The tests of the rank that tell no ranks apart where these guards hold.

    After `if a and rank != 0: return`, all ranks run the `else` of `if a`.
    """
    facts = [guard.predicate for guard, _ in guards if guard.predicate is not None]
    return [
        entry
        for entry in (run.guards if facts else ())
        if entry.guard.diverges_where is not None
        and holds_under(entry.guard.diverges_where, facts) is False
    ]


def _local_branch(
    run: Run,
    test: cst.BaseExpression,
    verdict: Verdict,
    then: Callable[[], Signal | None],
    orelse: Callable[[], Signal | None],
) -> Signal | None:
    """Execute both sides of a test that each rank decides by its own data."""
    local = verdict.local
    assert local is not None
    predicate = verdict.predicate
    yes = [*verdict.guards, (varying_guard(run, test, True, local, predicate), "")]
    no = [*verdict.guards, (varying_guard(run, test, False, local, predicate), "")]

    def join(one: Value, other: Value) -> Value:
        return join_by_data(one, other, local)

    two, one = execute_sides(
        run, side_under_guards(run, no, orelse), side_under_guards(run, yes, then), join
    )
    return _leave(
        run,
        _Side(one, no, local),
        _Side(two, yes, local),
        join=join,
        diverges=lambda signal: signal.kind not in {"raise", "exit"},  # they end the program
    )

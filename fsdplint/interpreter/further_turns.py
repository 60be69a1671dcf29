"""Further turns of a loop: what ranks that are gone after a turn leave to the others.

The second turn of a loop stands for all further ones, as far as all ranks make them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst
import libcst.matchers as m

from fsdplint.interpreter.rank_local import own_truth
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import RankTest
from fsdplint.trace import Called, Collective, GuardKind


def with_another(run: Run, turn: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """The turn of a module that stands for several, and another one if that differs by rank.

    It does if the first one has called modules and some ranks may have left the loop in it, so that
    they call no further ones.
    """
    outer, begin = {id(entry) for entry in run.guards}, len(run.trace.events)
    yield turn
    here = [entry.guard for entry in run.guards if id(entry) not in outer]
    if any(guard.own_data or guard.kind is GuardKind.RANK for guard in here):
        if any(isinstance(event, Called) for event in run.trace.events[begin:]):
            yield turn


def with_third(
    run: Run, turns: list[Callable[[], None]], test: cst.BaseExpression | None = None
) -> Iterator[Callable[[], None]]:
    """Two turns of a loop, and a third one if some ranks may be gone after the second one only.

    A flag that one rank sets in the second turn (`if counter > patience:`) ends the loop there, and
    what the others call in further turns waits for this rank.

    test: the test of a `while` loop.
    """
    yield turns[0]
    before, begin = {id(entry) for entry in run.guards}, len(run.trace.events)
    yield turns[1]
    here = [entry.guard for entry in run.guards if id(entry) not in before]
    differs = any(guard.own_data or guard.kind is GuardKind.RANK for guard in here)
    if differs or (test is not None and _is_flag_of_ranks(run, test)):
        if any(isinstance(event, Called | Collective) for event in run.trace.events[begin:]):
            yield turns[1]


def _is_flag_of_ranks(run: Run, test: cst.BaseExpression) -> bool:
    """Whether the ranks differ in a test without calls, which would have effects."""
    if m.findall(test, m.Call() | m.Await()):
        return False
    value = run.eval(test)
    return isinstance(value, RankTest) or own_truth(value) is not None

"""`for` and `while`: one iteration for each known element, else two.

The second turn of a loop repeats the first one. A loop in it whose two turns were executed before
makes one turn only: the step from one of its turns to the next was shown, so that nested loops take
a number of turns that grows with their depth, not exponentially.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import libcst as cst

from fsdplint.interpreter import set_orders, shared_draws
from fsdplint.interpreter.assignment import assign
from fsdplint.interpreter.branch_conditions import rank_guard, varying_guard
from fsdplint.interpreter.chosen_lists import chosen_by_data
from fsdplint.interpreter.constructs.branches import execute_test
from fsdplint.interpreter.data_loops import few_turns
from fsdplint.interpreter.decided_values import note_decided_units
from fsdplint.interpreter.dispatch import executes
from fsdplint.interpreter.drawn_turns import drawn_turns
from fsdplint.interpreter.filled_lists import lists_to_fill, note_filled
from fsdplint.interpreter.frames import BLOCK, LOOP, SUITE, TURN, OwnTurns
from fsdplint.interpreter.functions import call_function
from fsdplint.interpreter.further_turns import with_another, with_third
from fsdplint.interpreter.idle_turns import without_repeated
from fsdplint.interpreter.iteration import covers, iterator_of, next_of, read_all, yields_all
from fsdplint.interpreter.loop_forms import loop_by_next, turns_once
from fsdplint.interpreter.merging import matters
from fsdplint.interpreter.models.data import begin_pass, end_pass, loader_in, passes_begun
from fsdplint.interpreter.own_lengths import own_length
from fsdplint.interpreter.program_arguments import end_of_loop
from fsdplint.interpreter.rank_local import of_loader, own_truth
from fsdplint.interpreter.rank_turns import counting_side, guard_of, turns_by_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.signals import Signal, guard_end, terminates
from fsdplint.interpreter.torch_values import (
    Batches,
    ParametersOf,
    RankElement,
    RankSide,
    RankTest,
    each_parameter,
)
from fsdplint.interpreter.turn_tests import number_turns
from fsdplint.interpreter.unequal_turns import note_turns
from fsdplint.interpreter.values import Function, Lazy, ModuleValue, RankLocal, Value
from fsdplint.interpreter.values import Sequence as Items
from fsdplint.syntax.dotted import leaves
from fsdplint.trace import Guard, GuardKind
from fsdplint.trace.numbers import Token

MAX_ITEMS = 64  # elements of a known sequence that a loop visits
MAX_MODULES = 1_000  # modules of a model that a loop visits
TURNS = 2  # of a loop for the values of one `yield` in loops whose length is unknown


@dataclass(frozen=True)
class ElementLoop:
    """A loop over the elements of a value.

    node: the statement. place: the expression that is iterated. target: what each element is
    assigned to.
    """

    node: cst.CSTNode
    place: cst.BaseExpression
    target: cst.CSTNode
    body: cst.BaseSuite


class _Left(Exception):
    """Control leaves a loop over a generator, which is not executed further."""

    def __init__(self, signal: Signal) -> None:
        super().__init__(signal.kind)
        self.signal = signal


@executes(cst.For)
def execute_for(run: Run, node: cst.For) -> Signal | None:
    loop = ElementLoop(node, node.iter, node.target, node.body)
    return _with_else(run, node.orelse, _over_elements(run, loop, run.eval(node.iter)))


def _with_else(run: Run, orelse: cst.Else | None, signal: Signal | None) -> Signal | None:
    """The signal of a whole loop: a loop without `break` executes its `else`."""
    if signal is None and orelse is not None:
        return run.execute_suite(orelse.body)
    return None if signal is not None and signal.kind == "break" else signal


def _over_elements(run: Run, loop: ElementLoop, value: Value) -> Signal | None:
    own = turns_by_rank(value)
    guard = guard_of(run, own.side) if own is not None else None
    if own is None or guard is None:
        return _over_iterable(run, loop, value)
    if own.all_begin:
        return _over_iterable(run, loop, own.visited, further=guard)
    with run.under_guards([(guard, "")]):
        return _over_iterable(run, loop, own.visited)


def _over_iterable(
    run: Run, loop: ElementLoop, value: Value, further: Guard | None = None
) -> Signal | None:
    """further: the condition under which a rank makes more than one turn."""
    begin = len(run.trace.events)
    iterable = iterator_of(run, value)
    following = next_of(iterable)
    if following is not None:
        return _over_iterator(run, loop, iterable, following)
    loader = loader_in(iterable)
    if loader is not None and not (isinstance(iterable, Batches) and iterable.begun):
        begin_pass(run, loader, loop.place)
    begun = passes_begun(run, begin)
    own = loader is not None and of_loader(run, loader, loop.node) is not None
    run.own_passes += own
    if isinstance(iterable, Lazy) and iterable.drive is not None and iterable.elements is None:
        signal = _over_generator(run, loop, iterable)
    else:
        signal = _over_known(run, loop, iterable, further)
    run.own_passes -= own
    for name in begun if loader is None else [loader.id]:
        end_pass(run, name, loop.place)
    if run.turns:
        note_turns(run, loop.place, loop.body, iterable, begin)
    return signal


def _over_iterator(
    run: Run, loop: ElementLoop, iterator: Value, following: Function
) -> Signal | None:
    """Execute a loop over an object of the program, whose method gives the element of each turn."""
    begun: list[str] = []

    def turn() -> None:
        begin = len(run.trace.events)
        element = call_function(run, following, iterator, [], {}, loop.node)
        begun.extend(passes_begun(run, begin))
        assign(run, loop.target, element)

    signal = _loop(run, loop.body, True, with_third(run, [turn, turn]), repeats=True)
    for name in dict.fromkeys(begun):
        end_pass(run, name, loop.place)
    return signal


def _over_known(
    run: Run, loop: ElementLoop, iterable: Value, further: Guard | None
) -> Signal | None:
    visited = read_all(run, iterable)
    elements, exact = visited.items, not visited.open
    filled = lists_to_fill(run, loop.body, iterable)
    _note_loop(run, loop, visited.every)
    if visited.every:
        elements = [each_parameter(element) for element in elements]
    repeats = not exact and len(elements) == 1
    counts: list[Token] = []
    if repeats:
        elements, counts = number_turns(elements * 2)
    turns = [_turn_of(run, loop.target, element) for element in elements]
    if further is not None and len(turns) > 1:
        turns[1] = partial(_leave_and, run, further, turns[1])
    chosen = _chosen(run, loop.place, iterable) if run.has_own_data else None
    if chosen is not None:
        text = f"for {run.text(loop.target)} in {run.text(loop.place)}"
        guard = replace(varying_guard(run, loop.place, True, chosen), text=text)
        turns = [partial(_leave_and, run, guard, turn) for turn in turns]
    shared_draws.note_visited(run, run.settle(iterable))
    limit = MAX_MODULES if any(map(_holds_module, elements)) else MAX_ITEMS
    begin = len(run.trace.events)
    made: Iterable[Callable[[], None]] = turns
    if len(turns) == 1 and _stands_for_several(run, elements[0]) and leaves(loop.body):
        made = with_another(run, turns[0])
    elif repeats:
        made = with_third(run, turns)
    else:
        made = without_repeated(run, loop.body, loop.target, elements, turns)
        made = few_turns(run, loop.body, loop.target, elements, made)
    signal = _loop(
        *(run, loop.body, not exact, made),
        repeats=repeats,
        own=own_length(iterable),
        limit=limit,
    )
    note_filled(run, filled, iterable)
    note_decided_units(run, iterable, begin)
    set_orders.note_loop(run, loop.place, run.settle(iterable), begin)
    if counts and not leaves(loop.body, by_error=False):
        for count in counts:
            count.ended = len(run.trace.events)
    return signal


def _turn_of(run: Run, target: cst.CSTNode, element: Value) -> Callable[[], None]:
    """What begins the turn of an element; a turn may be one of some ranks only."""
    turn = partial(assign, run, target, run.settle(element))
    guard = guard_of(run, element.side) if isinstance(element, RankElement) else None
    return turn if guard is None else partial(_only_here, run, guard, turn)


def _only_here(run: Run, guard: Guard, turn: Callable[[], None]) -> None:
    """Begin a turn that only some ranks make."""
    run.leave_guards([(guard, "")], guard_end("continue"))
    turn()


def _chosen(run: Run, place: cst.BaseExpression, iterable: Value) -> RankLocal | None:
    """What each rank has for itself that decides how many turns a loop makes."""
    return chosen_by_data(run, place) or drawn_turns(run, iterable)


def _leave_and(run: Run, guard: Guard, turn: Callable[[], None]) -> None:
    """Begin a turn that only some ranks make, and all further ones."""
    run.leave_guards([(guard, "")], guard_end("break"))
    turn()


def _holds_module(element: Value) -> bool:
    """Whether an element is a module, or a tuple of its name and the module."""
    return any(isinstance(item, ModuleValue) for item in _items(element))


def _stands_for_several(run: Run, element: Value) -> bool:
    modules = [item for item in _items(element) if isinstance(item, ModuleValue)]
    return any(run.trace.modules[module.id].repeated for module in modules)


def _items(element: Value) -> Sequence[Value]:
    return element.items if isinstance(element, Items) else [element]


def _note_loop(run: Run, loop: ElementLoop, whole: bool) -> None:
    """Record whether a loop visits every element of its value."""
    run.loops[loop.node] = whole and run.loops.get(loop.node, True)


def _over_generator(run: Run, loop: ElementLoop, generator: Lazy) -> Signal | None:
    """Execute a generator, with one turn of the loop at each `yield`.

    Inside of nested loops of unknown length, a `yield` of data is executed many times; two turns
    show what the loop does with such a value.
    """
    assert generator.drive is not None
    function = generator.generator
    here, source, stack = run.frames[-1], run.source, list(run.stack)
    executing, outer = run.executing, list(run.guards)
    kept = list(outer)
    tests: list[GuardKind] = []
    depth, given = run.loop_depth, Counter[cst.CSTNode]()

    def turn(value: Value) -> None:
        if run.loop_depth > depth and not matters(value):
            given[run.executing] += 1
            if given[run.executing] > TURNS:
                return
        may_hold = isinstance(value, ParametersOf | Items)
        if may_hold and function is not None and yields_all(run, function):
            value = each_parameter(value)
        tests.extend(e.guard.kind for e in run.guards if all(e is not one for one in outer))
        inner = run.source, run.stack, run.executing
        run.frames.append(here)
        run.source, run.stack, run.executing = source, list(stack), executing
        before = {id(entry) for entry in run.guards}
        try:
            signal = _loop(run, loop.body, False, [partial(assign, run, loop.target, value)])
        finally:
            run.frames.pop()
            run.source, run.stack, run.executing = inner
        kept.extend(e for e in run.guards if e.until not in _ENDED and id(e) not in before)
        if signal is not None:
            raise _Left(signal)

    signal = None
    try:
        generator.drive(turn)
    except _Left as left:
        signal = left.signal
    run.guards = kept
    _note_loop(run, loop, covers(run, generator) and set(tests) <= {GuardKind.RANK})
    return signal


_ENDED = {BLOCK, SUITE, TURN, LOOP}  # guards that end with a turn of a loop


@executes(cst.While)
def execute_while(run: Run, node: cst.While) -> Signal | None:
    by_next = loop_by_next(run, node)
    if by_next is not None:
        iterator = run.eval(by_next.iterator)
        loop = ElementLoop(node, by_next.iterator, by_next.target, by_next.body)
        return _with_else(run, node.orelse, _over_elements(run, loop, iterator))
    if turns_once(node):
        ends = terminates(node.body)
        return execute_test(
            run,
            node,
            None if ends == "break" else ends,
            lambda: _with_else(run, None, _loop(run, node.body, False, [_no_target])),
        )

    counting: list[RankSide | None] = []

    def turn() -> None:
        """Ranks for which the test fails do not take part from this turn on."""
        test = run.eval(node.test)
        local = own_truth(test)
        counting.append(counting_side(run, node.test))
        further = guard_of(run, counting[0]) if counting[0] is not None else None
        if further is not None and isinstance(test, RankTest):
            if len(counting) > 1:
                run.leave_guards([(further, "")], guard_end("break"))
        elif isinstance(test, RankTest):
            run.leave_guards([(rank_guard(run, node.test, test, True), "")], guard_end("break"))
        elif local is not None:
            guard = varying_guard(run, node.test, True, local)
            run.leave_guards([(guard, "")], guard_end("break"))

    turns = with_third(run, [turn, turn], node.test)
    return _with_else(
        run, node.orelse, _loop(run, node.body, True, turns, repeats=True, tested=True)
    )


def _no_target() -> None:
    """The start of a turn of `while`, which assigns nothing."""


def _ends_turn_only(run: Run, signal: Signal) -> bool:
    """Whether the loop goes on.

    An error at the end of a turn that an undecided test may have left before is a failing check,
    as in `if id(p) in decayed: continue` and `raise ValueError`.
    """
    return signal.kind == "continue" or (signal.fails and run.own_turns[-1].left)


def _loop(
    run: Run,
    body: cst.BaseSuite,
    counted: bool,
    turns: Iterable[Callable[[], None]],
    *,
    repeats: bool = False,
    own: RankLocal | None = None,
    limit: int = MAX_ITEMS,
    tested: bool = False,
) -> Signal | None:
    """Execute the turns of a loop; the signal that ends it, `break` included.

    counted: whether the number of turns is unknown. repeats: whether the second of two turns stands
    for all further ones. own: what makes the number of turns different on each rank. limit: the
    most turns that are executed. tested: whether the loop is a `while`.
    """
    outer = list(run.guards)
    facts, in_turn = len(run.facts), run.in_turn
    run.in_turn = True
    run.loop_guards.append(outer)
    run.own_turns.append(OwnTurns(run.steps, outer, own, tested or leaves(body), body=body))
    run.loop_depth += counted
    if repeats and run.repetitions and body in run.repeated_loops:
        limit = 1
    try:
        for number, turn in enumerate(islice(turns, limit)):
            run.repetitions += repeats and number > 0
            try:
                turn()
                signal = run.execute_suite(body)
            finally:
                run.repetitions -= repeats and number > 0
            run.drop_guards(outer, "turn")
            del run.facts[facts:]
            if signal is not None and not _ends_turn_only(run, signal):
                return signal
        if repeats:
            run.repeated_loops.add(body)
    finally:
        run.drop_guards(outer, "loop")
        del run.facts[facts:]
        run.in_turn = in_turn
        run.loop_depth -= counted
        run.loop_guards.pop()
        run.own_turns.pop()
        end_of_loop(run)
    return None

"""`for` and `while`: one iteration for each known element, else two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import libcst as cst

from fsdplint.interpreter.assignment import assign
from fsdplint.interpreter.branch_conditions import rank_guard
from fsdplint.interpreter.iteration import iterate
from fsdplint.interpreter.models.data import loader_in
from fsdplint.interpreter.models.datasets import same_on_all_ranks
from fsdplint.interpreter.run import Run, executes
from fsdplint.interpreter.signals import Signal
from fsdplint.interpreter.torch_values import RankTest, each_parameter
from fsdplint.trace import LoaderIterated, LoaderLeft

MAX_ITEMS = 64  # elements of a known sequence that a loop visits


@executes(cst.For)
def execute_for(run: Run, node: cst.For) -> Signal | None:
    iterable = run.eval(node.iter)
    elements, exact = iterate(run, iterable)
    if not exact:
        elements = elements * 2 if len(elements) == 1 else elements
    if _all_parameters(node.iter):
        elements = [each_parameter(element) for element in elements]
    counted = not exact
    loader = loader_in(iterable)
    if loader is not None:
        run.emit(
            LoaderIterated,
            node.iter,
            loader=loader.id,
            sampler=loader.sampler.id if loader.sampler is not None else None,
            same_batches=same_on_all_ranks(run, loader),
        )
    turns = [partial(assign, run, node.target, element) for element in elements]
    signal = _loop(run, node.body, counted, turns)
    if loader is not None:
        run.emit(LoaderLeft, node.iter, loader=loader.id)
    if node.orelse is not None and signal is None:
        signal = run.execute_suite(node.orelse.body)
    return signal


@executes(cst.While)
def execute_while(run: Run, node: cst.While) -> Signal | None:
    test = run.eval(node.test)
    turns: list[Callable[[], None]] = [lambda: None, lambda: None]
    if isinstance(test, RankTest):
        with run.under_guards([(rank_guard(run, node.test, test, True), "")]):
            return _loop(run, node.body, True, turns)
    return _loop(run, node.body, True, turns)


def _loop(
    run: Run,
    body: cst.BaseSuite,
    counted: bool,
    turns: Sequence[Callable[[], None]],
) -> Signal | None:
    outer = list(run.guards)
    run.loop_guards.append(outer)
    run.loop_depth += counted
    try:
        for turn in turns[:MAX_ITEMS]:
            turn()
            signal = run.execute_suite(body)
            run.drop_guards(outer, "loop")
            if signal is not None and signal.kind in {"return", "raise", "exit"}:
                return signal
            if signal is not None and signal.kind == "break":
                break
    finally:
        run.loop_depth -= counted
        run.loop_guards.pop()
    return None


def _all_parameters(node: cst.BaseExpression) -> bool:
    """Whether an expression is all of `m.parameters()` or `m.named_parameters()`."""
    return (
        isinstance(node, cst.Call)
        and not node.args
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in ("parameters", "named_parameters")
    )

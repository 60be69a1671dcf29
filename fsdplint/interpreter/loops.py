"""Loops: every turn that is known, else one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import libcst as cst

from fsdplint.interpreter.branch_conditions import rank_guard
from fsdplint.interpreter.models.data import loader_in
from fsdplint.interpreter.models.datasets import alike_on_all_ranks
from fsdplint.interpreter.values import RankTest, each_parameter
from fsdplint.trace import LoaderIterated, LoaderLeft

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Interpreter
from fsdplint.interpreter.signals import Signal

MAX_ITEMS = 64  # elements of a known sequence that a loop visits


class Loops:
    """The part of the interpreter that executes `for` and `while`."""

    def execute_For(self: Interpreter, node: cst.For) -> Signal | None:
        iterable = self.eval(node.iter)
        elements, exact = self.iterate(iterable)
        if not exact:
            elements = elements * 2 if len(elements) == 1 else elements
        if _all_parameters(node.iter):
            elements = [each_parameter(element) for element in elements]
        counted = not exact
        loader = loader_in(iterable)
        if loader is not None:
            self.emit(
                LoaderIterated,
                node.iter,
                loader=loader.id,
                sampler=loader.sampler.id if loader.sampler is not None else None,
                alike=alike_on_all_ranks(self, loader),
            )
        signal = self._loop(
            node.body, counted, [lambda e=e: self.assign(node.target, e) for e in elements]
        )
        if loader is not None:
            self.emit(LoaderLeft, node.iter, loader=loader.id)
        if node.orelse is not None and signal is None:
            signal = self.execute_suite(node.orelse.body)
        return signal

    def execute_While(self: Interpreter, node: cst.While) -> Signal | None:
        test = self.eval(node.test)
        turns: list[Callable[[], None]] = [lambda: None, lambda: None]
        if isinstance(test, RankTest):
            with self.guarded([(rank_guard(self, node.test, test, True), "")]):
                return self._loop(node.body, True, turns)
        return self._loop(node.body, True, turns)

    def _loop(
        self: Interpreter,
        body: cst.BaseSuite,
        counted: bool,
        turns: list[Callable[[], None]],
    ) -> Signal | None:
        outer = list(self.guards)
        self.loop_guards.append(outer)
        self.loop_depth += counted
        try:
            for turn in turns[:MAX_ITEMS]:
                turn()
                signal = self.execute_suite(body)
                self._drop_guards(outer, "loop")
                if signal is not None and signal.kind in {"return", "raise", "exit"}:
                    return signal
                if signal is not None and signal.kind == "break":
                    break
        finally:
            self.loop_depth -= counted
            self.loop_guards.pop()
        return None

    def _drop_guards(self: Interpreter, outer: list[Any], until: str) -> None:
        """Forget the guards that were left behind in a loop body or function which ends here."""
        known = {id(entry) for entry in outer}
        ended = {"loop": {"block", "loop"}, "function": {"block", "loop", "function"}}[until]
        self.guards = [e for e in self.guards if id(e) in known or e.until not in ended]


def _all_parameters(node: cst.BaseExpression) -> bool:
    """Whether an expression is `m.parameters()` or `m.named_parameters()`, no part of them."""
    return (
        isinstance(node, cst.Call)
        and not node.args
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in ("parameters", "named_parameters")
    )

"""`with` and `try`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.interpreter.branch_conditions import Outcome, decide
from fsdplint.interpreter.values import (
    Condition,
    Context,
    GeneratorContext,
    Instance,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Interpreter
from fsdplint.interpreter.signals import Signal


class Contexts:
    """The part of the interpreter that executes `with` and `try`."""

    def execute_With(self: Interpreter, node: cst.With) -> Signal | None:
        return self._with_items(list(node.items), node.body)

    def _with_items(
        self: Interpreter, items: list[cst.WithItem], body: cst.BaseSuite
    ) -> Signal | None:
        if not items:
            return self.execute_suite(body)
        item, rest = items[0], items[1:]
        context = self.eval(item.item)
        if isinstance(context, GeneratorContext):
            return self._with_generator(context, item, lambda: self._with_items(rest, body))
        target = item.asname.name if item.asname is not None else None
        with self.entered(context, target):
            return self._with_items(rest, body)

    @contextmanager
    def entered(
        self: Interpreter, context: Value, target: cst.BaseExpression | None = None
    ) -> Iterator[None]:
        if target is not None:
            self.assign(
                target,
                context.module
                if isinstance(context, Context) and context.module
                else _entered_as(context),
            )
        if isinstance(context, Instance):
            self.call_method_if_any(context, "__enter__")
        self.contexts.append(context)
        try:
            yield
        finally:
            self.contexts.pop()
            if isinstance(context, Context) and context.on_exit is not None:
                context.on_exit()
            if isinstance(context, Instance):
                self.call_method_if_any(context, "__exit__")

    def _with_generator(
        self: Interpreter,
        context: GeneratorContext,
        item: cst.WithItem,
        body: Callable[[], Signal | None],
    ) -> Signal | None:
        """Run a @contextmanager's function with the `with` block in the place of its `yield`."""
        signals: list[Signal | None] = []
        here = self.frames[-1]
        source = self.source

        def on_yield(value: Value) -> None:
            if signals:
                return
            inner = self.frames[-1], self.source
            self.frames.append(here)
            self.source = source
            try:
                if item.asname is not None:
                    self.assign(item.asname.name, value)
                signals.append(body())
            finally:
                self.frames.pop()
                self.source = inner[1]

        function = context.function
        self.call_with_yield(function, context, item.item, on_yield)
        if not signals:
            signals.append(body())
        return signals[0]

    def execute_Try(self: Interpreter, node: cst.Try) -> Signal | None:
        optional = self._optional_import(node)
        if optional is not None:
            text = f"{optional} is installed"
            condition = Condition(text, text, False, text, "truth")
            verdict = decide(self, condition, cst.Name("installed"), True)
            if self.project.words.stand_in(node):
                self.decisions.relevant.add(text)
            if verdict.outcome is Outcome.FALSE:
                with self.guarded(verdict.guards):
                    signal = self.execute_suite(node.handlers[0].body)
                    if node.finalbody is not None:
                        signal = self.execute_suite(node.finalbody.body) or signal
                return signal
        signal = self.execute_suite(node.body)
        if signal is not None and signal.kind == "raise":
            signal = None
            for handler in node.handlers:
                signal = self.execute_suite(handler.body)
                break
        elif node.orelse is not None and signal is None:
            signal = self.execute_suite(node.orelse.body)
        if node.finalbody is not None:
            final = self.execute_suite(node.finalbody.body)
            signal = final or signal
        return signal

    def _optional_import(self: Interpreter, node: cst.Try) -> str | None:
        """The library that a `try: import ... except ImportError: ...` can do without."""
        if not node.handlers or not isinstance(node.body, cst.IndentedBlock):
            return None
        caught = node.handlers[0].type
        if (
            caught is None
            or "Import" not in self.text(caught)
            and "Module" not in self.text(caught)
        ):
            return None
        for line in node.body.body:
            for statement in line.body if isinstance(line, cst.SimpleStatementLine) else ():
                name = ""
                if isinstance(statement, cst.Import):
                    name = statement.names[0].evaluated_name
                elif isinstance(statement, cst.ImportFrom):
                    name = self.absolute_name(statement)
                top = name.partition(".")[0]
                # torch is always there; the project's own files are too
                if top and top != "torch" and self._locate(name) is None:
                    return top
        return None

    def execute_TryStar(self: Interpreter, node: cst.TryStar) -> Signal | None:
        return self.execute_suite(node.body)


def _entered_as(context: Value) -> Unknown:
    """What `with context as name` binds: an opened file is as much one per rank as its path."""
    if isinstance(context, Unknown) and context.origin.startswith("open("):
        return context
    return Unknown(origin="")

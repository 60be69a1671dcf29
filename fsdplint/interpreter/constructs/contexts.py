"""`with` and `try`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import libcst as cst

from fsdplint.interpreter import caught_errors
from fsdplint.interpreter.assignment import assign
from fsdplint.interpreter.branch_conditions import Truth, Verdict, decide
from fsdplint.interpreter.constructs.branches import branch
from fsdplint.interpreter.context_entry import Stopped, enter, leave
from fsdplint.interpreter.decided_values import deciding
from fsdplint.interpreter.dispatch import executes
from fsdplint.interpreter.functions import call_with_yield
from fsdplint.interpreter.imports import absolute_name, locate_module
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.signals import Signal
from fsdplint.interpreter.unrestored_weights import note_unrestored_weights
from fsdplint.interpreter.values import Condition, GeneratorContext, Instance, Value
from fsdplint.source.positions import descend
from fsdplint.trace import GuardKind


@executes(cst.With)
def execute_with(run: Run, node: cst.With) -> Signal | None:
    return _with_items(run, list(node.items), node.body)


def _with_items(run: Run, items: list[cst.WithItem], body: cst.BaseSuite) -> Signal | None:
    if not items:
        return run.execute_suite(body)
    item, rest = items[0], items[1:]
    context = run.eval(item.item)
    if isinstance(context, GeneratorContext):
        inside = partial(_with_items, run, rest, body)
        within = partial(_with_generator, run, context, item, inside)
        if context.certain:
            return within()
        verdict = Verdict(Truth.VARYING, predicate=context.opens)
        return branch(run, item.item, verdict, within, inside)
    target = item.asname.name if item.asname is not None else None
    with entered_context(run, context, target):
        return _with_items(run, rest, body)


@contextmanager
def entered_context(
    run: Run, context: Value, target: cst.BaseExpression | None = None
) -> Iterator[None]:
    begun = len(run.trace.events)
    entered = enter(run, context)
    inside = len(run.trace.events)
    if target is not None:
        assign(run, target, entered)
    try:
        yield
    except Stopped:
        raise
    except BaseException:
        leave(run, context)
        raise
    leave(run, context)
    if isinstance(context, Instance) and run.executing is not None:
        note_unrestored_weights(run, context.cls.lookup("__exit__"), run.executing, begun, inside)


def _with_generator(
    run: Run,
    context: GeneratorContext,
    item: cst.WithItem,
    body: Callable[[], Signal | None],
) -> Signal | None:
    """Execute the function of a @contextmanager with the `with` block at its `yield`.

    Where both sides of a test have a `yield`, the block is executed on both.
    """
    signals: list[Signal | None] = []
    here = run.frames[-1]
    source = run.source
    outside = {id(entry) for entry in run.guards}
    sides: list[tuple[tuple[str, bool], ...]] = []
    begun = len(run.trace.events)
    entered: list[int] = []

    def on_yield(value: Value) -> None:
        entered.append(len(run.trace.events))
        side = tuple(
            (entry.guard.text, entry.guard.holds)
            for entry in run.guards
            if id(entry) not in outside and entry.guard.kind is not GuardKind.CONFIG
        )
        if sides and (side in sides or not side or not sides[0]):
            return
        sides.append(side)
        inner = run.frames[-1], run.source
        run.frames.append(here)
        run.source = source
        try:
            if item.asname is not None:
                assign(run, item.asname.name, value)
            signals.append(body())
        finally:
            run.frames.pop()
            run.source = inner[1]

    function = context.function
    call_with_yield(run, function, context, item.item, on_yield)
    if len(entered) == 1:
        note_unrestored_weights(run, function, item.item, begun, entered[0])
    if not signals:
        signals.append(body())
    return None if None in signals else signals[0]


@executes(cst.Try)
def execute_try(run: Run, node: cst.Try) -> Signal | None:
    optional = _optional_import(run, node)
    keys: tuple[str, ...] = ()
    if optional is not None:
        text = f"{optional} is installed"
        condition = Condition(text, text, False, text, "truth")
        prefer = not any(_imports_from_torch(handler.body) for handler in node.handlers)
        verdict = decide(run, condition, cst.Name("installed"), prefer)
        if run.project.words.stand_in(node):
            run.decisions.relevant.add(text)
        keys = verdict.keys
        if verdict.outcome is Truth.FALSE:
            with run.under_guards(verdict.guards), deciding(run, keys):
                signal = run.execute_suite(node.handlers[0].body)
                if node.finalbody is not None:
                    signal = run.execute_suite(node.finalbody.body) or signal
            return signal
    frame = run.frames[-1]
    frame.handlers += bool(node.handlers)
    begin = len(run.trace.events)
    with deciding(run, keys):
        signal = run.execute_suite(node.body)
    frame.handlers -= bool(node.handlers)
    caught_errors.note_caught(run, node, begin)
    if signal is not None and signal.kind == "raise":
        signal = None
        for handler in node.handlers:
            signal = run.execute_suite(handler.body)
            break
    elif signal is None and (restart := _restart(run, node)) is not None:
        suite, test = restart.body, restart.type or cst.Name("StopIteration")
        skip: Callable[[], Signal | None] = lambda: None  # noqa: E731
        branch(run, test, Verdict(Truth.VARYING), lambda: run.execute_suite(suite), skip)
    elif node.orelse is not None and signal is None:
        signal = run.execute_suite(node.orelse.body)
    if node.finalbody is not None:
        final = run.execute_suite(node.finalbody.body)
        signal = final or signal
    return signal


def _restart(run: Run, node: cst.Try) -> cst.ExceptHandler | None:
    """The handler that begins an iterator again at its end, in a loop; None if there is none."""
    if not run.loop_depth:
        return None
    for handler in node.handlers:
        ended = handler.type is None or "StopIteration" in run.text(handler.type)
        if not ended:
            continue
        inside = list(descend(handler.body))
        if any(map(_makes_iterator, inside)):
            return None if any(isinstance(one, _LEAVES) for one in inside) else handler
    return None


_LEAVES = (cst.Break, cst.Continue, cst.Return, cst.Raise)


def _makes_iterator(node: cst.CSTNode) -> bool:
    """Whether a node is a call of `iter`."""
    called = node.func if isinstance(node, cst.Call) else None
    return isinstance(called, cst.Name) and called.value == "iter"


def _optional_import(run: Run, node: cst.Try) -> str | None:
    """The optional library of a `try: import ... except ImportError: ...`, or None."""
    if not node.handlers or not isinstance(node.body, cst.IndentedBlock):
        return None
    caught = node.handlers[0].type
    if caught is None or "Import" not in run.text(caught) and "Module" not in run.text(caught):
        return None
    for line in node.body.body:
        for statement in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            name = ""
            if isinstance(statement, cst.Import):
                name = statement.names[0].evaluated_name
            elif isinstance(statement, cst.ImportFrom):
                name = absolute_name(statement)
            top = name.partition(".")[0]
            # torch and the files of the project are always installed
            if top and top != "torch" and locate_module(run, name) is None:
                return top
    return None


def _imports_from_torch(suite: cst.BaseSuite) -> bool:
    """Whether a block imports names from torch: in place of those of a library for other devices,
    if the block handles that the library is missing."""
    lines = [line for line in suite.body if isinstance(line, cst.SimpleStatementLine)]
    statements = [statement for line in lines for statement in line.body]
    imports = [one for one in statements if isinstance(one, cst.ImportFrom)]
    return any(absolute_name(one).startswith("torch.") for one in imports)


@executes(cst.TryStar)
def execute_try_star(run: Run, node: cst.TryStar) -> Signal | None:
    return run.execute_suite(node.body)

"""Functions under @contextmanager that a call enters: `stack.enter_context(section(x))`.

No block of the program belongs to such a context. The function stops at its `yield`, and what
comes after the `yield` is executed when the context is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import libcst as cst

from fsdplint.interpreter import lazy
from fsdplint.interpreter.context_entry import Stopped, leave
from fsdplint.interpreter.functions import call_with_yield
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Bound, Context, Function, GeneratorContext, Unknown, Value
from fsdplint.source.source import Source
from fsdplint.trace import GuardKind

KIND = "suspended"  # the kind of the context of a function that has stopped


class _AtYield(Stopped):
    """A function has stopped at a `yield`; `finish` executes what comes after it."""

    def __init__(self, value: Value, finish: Callable[[], object]) -> None:
        super().__init__()
        self.value = value
        self.finish = finish


def enter_function(
    run: Run, context: GeneratorContext, node: cst.CSTNode
) -> tuple[Context, Value] | None:
    """Execute a function up to its `yield`: the context that it is, and the value that it yields.

    None if the function is not known, or came to no `yield` that all ranks reach each time. It was
    executed to its end then.
    """
    function = context.function
    if isinstance(function, Bound):
        function = function.function
    if not isinstance(function, Function) or function.contexts or not context.certain:
        return None
    outside = {id(entry) for entry in run.guards}
    executing, loops, entered = run.executing, run.loop_depth, len(run.contexts)

    def stop(value: Value) -> None:
        kinds = (entry.guard.kind for entry in run.guards if id(entry) not in outside)
        if run.loop_depth == loops and all(kind is GuardKind.CONFIG for kind in kinds):
            finish = partial(_execute_rest, run, _after(run.source, run.executing))
            raise _AtYield(value, lazy.in_frame(run, finish))

    try:
        call_with_yield(run, context.function, context, node, stop)
    except _AtYield as stopped:
        run.executing = executing
        made = Context(KIND)
        made.on_exit = partial(_leave, run, stopped.finish, run.contexts[entered:])
        return made, stopped.value
    return None


def _leave(run: Run, finish: Callable[[], object], inner: Sequence[Value]) -> None:
    """End a function that has stopped, and the contexts that it has entered."""
    finish()
    for context in reversed(inner):
        leave(run, context)


def _execute_rest(run: Run, rest: Sequence[Sequence[cst.CSTNode]]) -> Value:
    for block in rest:
        if run.execute_block(block) is not None:
            break
    return Unknown()


def _after(source: Source, statement: cst.CSTNode) -> list[Sequence[cst.CSTNode]]:
    """The blocks of a function that are executed after a statement, without those of its loops."""
    return list(_blocks_after(source, statement))


def _blocks_after(source: Source, statement: cst.CSTNode) -> Iterator[Sequence[cst.CSTNode]]:
    inner, outer = statement, source.parent(statement)
    while outer is not None and not isinstance(inner, cst.FunctionDef):
        if isinstance(outer, cst.IndentedBlock | cst.SimpleStatementLine):
            body: list[cst.CSTNode] = list(outer.body)
            yield body[body.index(inner) + 1 :]
        elif isinstance(outer, cst.Try) and inner is outer.body:
            if outer.orelse is not None:
                yield outer.orelse.body.body
            if outer.finalbody is not None:
                yield outer.finalbody.body.body
        inner, outer = outer, source.parent(outer)

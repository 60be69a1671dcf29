"""contextlib: stacks of contexts, and contexts that are entered by a call."""

from __future__ import annotations

from dataclasses import replace

from fsdplint.interpreter import lazy
from fsdplint.interpreter.context_entry import EXIT_STACK, enter, leave
from fsdplint.interpreter.error_handling import SUPPRESS
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.suspended_contexts import enter_function
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Const,
    Context,
    GeneratorContext,
    Method,
    Sequence,
    Unknown,
    Value,
)
from fsdplint.trace import GuardKind
from fsdplint.trace.predicates import AllOf

_ENTERED = "entered"  # the contexts of a stack, in order


@function("contextlib.nullcontext")
def null_context(run: Run, name: str, call: Call) -> Value:
    return Context("null")


@function("contextlib.ExitStack")
def exit_stack(run: Run, name: str, call: Call) -> Value:
    stack = Context(EXIT_STACK, details={_ENTERED: Sequence([])})
    stack.on_exit = lambda: _leave_all(run, stack)
    return stack


@method("Context", "enter_context")
def enter_context(run: Run, receiver: Context, name: str, call: Call) -> Value:
    """`stack.enter_context(context)`; the stack leaves it at its own end."""
    entered = receiver.details.get(_ENTERED)
    context = run.settle(call.args[0]) if call.args else Unknown()
    if not isinstance(entered, Sequence):
        return call_unknown(run, Method(receiver, name), call)
    if isinstance(context, GeneratorContext):
        stopped = enter_function(run, context, call.node)
        if stopped is None:
            return call_unknown(run, Method(receiver, name), call)
        run.contexts.append(stopped[0])
        entered.items.append(stopped[0])
        return stopped[1]
    _note_tests(run, context)
    value = enter(run, context)
    entered.items.append(context)
    return value


def _note_tests(run: Run, context: Value) -> None:
    """Note the tests around a call that enters a context: after them, it may be open or not."""
    if not isinstance(context, Context) or context.kind != "no_sync" or not context.certain:
        return
    tests = [entry.guard for entry in run.guards if entry.guard.kind is not GuardKind.RANK]
    known = [test.predicate for test in tests if test.predicate is not None]
    if any(test.kind is GuardKind.VARYING for test in tests):
        context.certain, context.opens = False, AllOf(tuple(known))


@method("Context", "callback")
def add_callback(run: Run, receiver: Context, name: str, call: Call) -> Value:
    """`stack.callback(function, ...)`: the stack calls the function at its own end."""
    entered = receiver.details.get(_ENTERED)
    if not isinstance(entered, Sequence) or not call.args:
        return call_unknown(run, Method(receiver, name), call)
    function, *args = call.args
    later = replace(call, args=args, kwargs=dict(call.kwargs), spread=list(call.spread))
    at_exit = lazy.in_frame(run, lambda: run.call(function, later))
    made = Context("callback")

    def leave_stack() -> None:
        at_exit()

    made.on_exit = leave_stack
    enter(run, made)
    entered.items.append(made)
    return function


@function("contextlib.suppress")
def suppress(run: Run, name: str, call: Call) -> Value:
    return Context(SUPPRESS)


@method("Context", "close")
def close(run: Run, receiver: Context, name: str, call: Call) -> Value:
    if receiver.kind == EXIT_STACK:
        _leave_all(run, receiver)
    return Const(None)


@method("Context", "__enter__")
def enter_by_call(run: Run, receiver: Context, name: str, call: Call) -> Value:
    _note_tests(run, receiver)
    return enter(run, receiver)


@method("Context", "__exit__")
def leave_by_call(run: Run, receiver: Context, name: str, call: Call) -> Value:
    leave(run, receiver)
    return Const(None)


def _leave_all(run: Run, stack: Context) -> None:
    entered = stack.details[_ENTERED]
    while isinstance(entered, Sequence) and entered.items:
        leave(run, entered.items.pop())

"""Coroutines, which run when they are called: what event loops and tasks give is their result."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Sequence, Unknown, Value


@function("asyncio.run", "asyncio.wait_for", "asyncio.shield", "asyncio.create_task",
          "asyncio.ensure_future", "uvloop.run")  # fmt: skip
def result_of(run: Run, name: str, call: Call) -> Value:
    return call.args[0] if call.args else Unknown()


@function("asyncio.gather")
def await_together(run: Run, name: str, call: Call) -> Value:
    """The results of all coroutines. No rank takes part in it."""
    return Sequence(list(call.args), "list", call.open)


@function("asyncio.to_thread")
def call_in_thread(run: Run, name: str, call: Call) -> Value:
    """Calls the function that it gets, with the other arguments."""
    if not call.args:
        return Unknown()
    return run.call(call.args[0], Call(call.node, call.args[1:], dict(call.kwargs), call.open))


@function("anyio.run", "anyio.to_thread.run_sync", "trio.run")
def call_given(run: Run, name: str, call: Call) -> Value:
    """Calls the function that it gets, with the other positional arguments."""
    return call_in_thread(run, name, Call(call.node, call.args, {}, call.open))


@method("asyncio.get_event_loop", "run_until_complete", "create_task")
@method("asyncio.get_running_loop", "run_until_complete", "create_task")
@method("asyncio.new_event_loop", "run_until_complete", "create_task")
@method("asyncio.Runner", "run")
def result_of_loop(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    return result_of(run, name, call)


@method("asyncio.get_event_loop", "run_in_executor")
@method("asyncio.get_running_loop", "run_in_executor")
@method("asyncio.new_event_loop", "run_in_executor")
def call_in_executor(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """`loop.run_in_executor(executor, function, *args)`."""
    return call_given(run, name, Call(call.node, call.args[1:], {}, call.open))

"""The local rank as a command-line argument, as an old launcher passed it."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import method
from fsdplint.interpreter.ranks import ARGUMENT
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Unknown, Value, constant


@method("Unknown", "add_argument")
def add_argument(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    names = [constant(value) for value in call.args]
    default = call.kwargs.get("default")
    plain = not call.open and "dest" not in call.kwargs and constant(default) in (0, -1)
    if names == [ARGUMENT] and plain and isinstance(default, Const):
        run.launcher_arguments["local_rank"] = run.site(call.node)
    elif ARGUMENT in names:
        run.launcher_arguments.pop("local_rank", None)
    return Unknown()

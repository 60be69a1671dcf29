"""The identities of parameters: `{id(p) for p in model.head.parameters()}`."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParameterId, ParametersOf
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import Unknown, Value


@function("builtins.id")
def identity_of(run: Run, name: str, call: Call) -> Value:
    given = run.settle(call.args[0]) if len(call.args) == 1 else Unknown()
    if isinstance(given, ParametersOf) and given.element and not given.derived:
        return ParameterId(varying=True, parameters=given)
    return unknown_result(call)

"""Arguments that `**mapping` gives to a function of the program, if the mapping is not known."""

from __future__ import annotations

from fsdplint.interpreter.elements import subscript
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.functions import signature_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Bound, Class, Const, Function, Unknown, Value


def fill_from_mapping(run: Run, callee: Value, call: Call, mapping: Value) -> None:
    """Give a call the arguments that `**mapping` certainly has: those without a default.

    The program may read the same entries of an unknown mapping itself, and gets the same values.
    """
    mapping, callee = run.settle(mapping), run.settle(callee)
    bound = isinstance(callee, Bound | Class)
    if isinstance(callee, Class):
        function = callee.lookup("__init__")
    else:
        function = callee.function if isinstance(callee, Bound) else callee
    if not isinstance(function, Function) or not isinstance(mapping, Unknown) or call.shifted:
        return
    signature = signature_of(run, function)
    filled = {*signature.positional[: len(call.args) + bound], *call.kwargs, *function.defaults}
    for name in signature.params:
        if name not in filled:
            call.kwargs[name] = subscript(run, mapping, Const(name), call.node)

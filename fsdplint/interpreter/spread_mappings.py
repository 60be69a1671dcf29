"""Arguments that `**mapping` gives to a function of the program, if the mapping is not known."""

from __future__ import annotations

from fsdplint.interpreter.elements import subscript
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.functions import signature_of
from fsdplint.interpreter.records import dataclass_fields
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Bound, Class, Const, Dict, Function, Unknown, Value


def fill_from_mapping(run: Run, callee: Value, call: Call, mapping: Value) -> None:
    """Give a call the arguments that `**mapping` certainly has: those without a default.

    The program may read the same entries of an unknown mapping itself, and gets the same values.
    Of the settings in a file, each entry that the call takes is known.
    """
    mapping, callee = run.settle(mapping), run.settle(callee)
    if not isinstance(mapping, Unknown) or call.shifted:
        return
    settings = mapping.default.items if isinstance(mapping.default, Dict) else {}
    bound = isinstance(callee, Bound | Class)
    if isinstance(callee, Class):
        function = callee.lookup("__init__")
        if not isinstance(function, Function):
            _fill_fields(run, callee, call, settings)
            return
    else:
        function = callee.function if isinstance(callee, Bound) else callee
    if not isinstance(function, Function):
        return
    signature = signature_of(run, function)
    given = {*signature.positional[: len(call.args) + bound], *call.kwargs}
    for name in signature.params:
        if name not in given and (name in settings or name not in function.defaults):
            call.kwargs[name] = subscript(run, mapping, Const(name), call.node)


def _fill_fields(run: Run, made: Class, call: Call, settings: dict[object, Value]) -> None:
    """Give a constructor that a decorator or a base class has made the fields in a file."""
    given = {*dataclass_fields(run, made)[: len(call.args)], *call.kwargs}
    for name in dataclass_fields(run, made):
        if name not in given and name in settings:
            call.kwargs[name] = settings[name]

"""Functions that read from an object or call a function: `operator` and `functools.reduce`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter import tensor_marks
from fsdplint.interpreter.attributes import read_attribute
from fsdplint.interpreter.dispatch import calls
from fsdplint.interpreter.elements import subscript
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.iteration import iterate
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import Sequence, Symbol, Unknown, Value, constant


@dataclass(eq=False, repr=False)
class Accessor(Value):
    """A function of one object, which is given with the node of the call."""

    read: Callable[[Value, cst.CSTNode], Value]


@calls(Accessor)
def call_accessor(run: Run, accessor: Accessor, call: Call) -> Value:
    if len(call.args) != 1 or call.kwargs or call.open:
        return call_unknown(run, Unknown(), call)
    return accessor.read(run.settle(call.args[0]), call.node)


@function("operator.methodcaller")
def method_caller(run: Run, name: str, call: Call) -> Value:
    method = constant(call.args[0]) if call.args else None
    if not isinstance(method, str):
        return Unknown()
    args, kwargs, is_open = call.args[1:], dict(call.kwargs), call.open

    def read(value: Value, node: cst.CSTNode) -> Value:
        found = read_attribute(run, value, method, node)
        inner = Call(node, list(args), dict(kwargs), is_open)
        result = run.call(found, inner)
        tensor_marks.note_call(run, run.settle(found), inner, result)
        return result

    return Accessor(read)


@function("operator.attrgetter")
def attribute_getter(run: Run, name: str, call: Call) -> Value:
    paths = [constant(value) for value in call.args]
    if not paths or call.open or not all(isinstance(path, str) for path in paths):
        return Unknown()

    def one(value: Value, path: str, node: cst.CSTNode) -> Value:
        for part in path.split("."):
            value = run.settle(read_attribute(run, value, part, node))
        return value

    def read(value: Value, node: cst.CSTNode) -> Value:
        found = [one(value, str(path), node) for path in paths]
        return found[0] if len(found) == 1 else Sequence(found, "tuple")

    return Accessor(read)


@function("operator.itemgetter")
def item_getter(run: Run, name: str, call: Call) -> Value:
    keys = list(call.args)
    if not keys or call.open:
        return Unknown()

    def read(value: Value, node: cst.CSTNode) -> Value:
        found = [subscript(run, value, key, node) for key in keys]
        return found[0] if len(found) == 1 else Sequence(found, "tuple")

    return Accessor(read)


@function("operator.getitem")
def get_item(run: Run, name: str, call: Call) -> Value:
    if len(call.args) != 2:
        return Unknown()
    return subscript(run, call.args[0], call.args[1], call.node)


@function("functools.reduce")
def reduce(run: Run, name: str, call: Call) -> Value:
    """`reduce(function, elements, first)`"""
    if len(call.args) < 2:
        return call_unknown(run, Symbol(name), call)
    elements, exact = iterate(run, call.args[1])
    elements = [*call.args[2:3], *elements]
    if not elements or not (exact or _reads(run, call.args[0])):
        return call_unknown(run, Symbol(name), call)
    result = elements[0]
    for element in elements[1:]:
        result = run.call(call.args[0], Call(call.node, [result, element]))
    return result


def _reads(run: Run, function: Value) -> bool:
    """Whether a function only reads: with unknown names, it gives some part of what it gets."""
    function = run.settle(function)
    return isinstance(function, Symbol) and function.name == "builtins.getattr"

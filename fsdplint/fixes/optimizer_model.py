"""Find the model of an optimizer, and how the code refers to it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.fixes.syntax import call_at
from fsdplint.interpreter.program import Program
from fsdplint.source.source import Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.enclosing import function_around
from fsdplint.trace import Event, OptimizerBuilt, Trace


def trace_of(program: Program, event: Event) -> Trace | None:
    """The trace of an event."""
    for trace in program.traces:
        if event.index < len(trace.events) and trace.events[event.index] is event:
            return trace
    return None


def model_of(
    program: Program, source: Source, at: cst.CSTNode, built: OptimizerBuilt
) -> str | None:
    """How the code at a node refers to the model of an optimizer.

    The name is one that the same function uses before, or its parameter, or an attribute of `self`,
    that refers to the only module of the optimizer. Otherwise it is the name in the construction of
    the optimizer, if that is in the same function or is an attribute of `self`.
    """
    if len(built.modules) != 1:
        return None
    scope = function_around(source, at)
    before: list[tuple[int, str]] = []
    end = source.span(at)[0]
    for node in _dotted_in(scope):
        if any(getattr(value, "id", None) == built.modules[0] for value in program.values(node)):
            start, path = source.span(node)[0], dotted_name(node)
            if start < end or path.split(".")[0] in {"self", *_parameters(scope)}:
                before.append((start, path))
    if before:
        return max(before)[1]
    target = call_at(built.site)
    if target is None or not target[1].args:
        return None
    other, call = target
    name = _parameters_of(call.args[0].value)
    if name is None or other is not source:
        return None
    if name.startswith("self.") or function_around(source, call) is scope:
        return name
    return None


def _parameters(scope: cst.CSTNode) -> set[str]:
    if not isinstance(scope, cst.FunctionDef):
        return set()
    return {p.name.value for p in (*scope.params.params, *scope.params.kwonly_params)}


def _dotted_in(scope: cst.CSTNode) -> Iterator[cst.Name | cst.Attribute]:
    stack: list[cst.CSTNode] = [scope]
    while stack:
        node = stack.pop()
        if isinstance(node, cst.Name | cst.Attribute) and dotted_name(node):
            yield node
        if isinstance(node, cst.Attribute | cst.Arg):
            stack.append(node.value)
        else:
            stack.extend(node.children)


def _parameters_of(node: cst.BaseExpression) -> str | None:
    """The text of `model` in `model.parameters()`."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        if node.func.attr.value == "parameters" and not node.args:
            return dotted_name(node.func.value) or None
    return None

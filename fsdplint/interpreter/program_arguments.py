"""The elements of `sys.argv`, which a program reads itself in a loop.

Within the loop, the element differs by turn. What a turn assigns is a setting after the loop.
"""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Symbol, Unknown, Value


def is_argv(value: Value) -> bool:
    """Whether a value is `sys.argv`, or the same list of another library."""
    return isinstance(value, Symbol) and value.name.rpartition(".")[2] == "argv"


def is_literal_index(node: cst.CSTNode) -> bool:
    """Whether a subscript has the same index in each turn of a loop."""
    return isinstance(node, cst.Subscript) and all(
        isinstance(one.slice, cst.Index) and _is_literal(one.slice.value) for one in node.slice
    )


def _is_literal(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        node = node.expression
    return isinstance(node, cst.Integer | cst.SimpleString)


def each_argument() -> Unknown:
    """The element of a turn of a loop."""
    return Unknown(varying=True, argument=True)


def end_of_loop(run: Run) -> None:
    """Make settings of the arguments of the program that a loop has assigned to local names."""
    names = run.scope.names
    for name, value in list(names.items()):
        if isinstance(value, Unknown) and value.argument and not value.origin:
            names[name] = replace(value, origin=name, varying=False, argument=False, parts={})

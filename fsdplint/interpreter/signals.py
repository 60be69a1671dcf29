"""How control leaves a block."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.values import Value
from fsdplint.source.source import Source

# Functions that end the program.
EXITS = frozenset({"builtins.exit", "builtins.quit", "os._exit", "sys.exit"})


@dataclass
class Signal:
    """Control leaves the block: kind is "return", "break", "continue", "raise" or "exit".

    fails: whether it ends the program with an error, so that the launcher ends the other ranks.
    """

    kind: str
    value: Value | None = None
    fails: bool = False


def terminates(body: cst.BaseSuite | cst.BaseCompoundStatement | None) -> str | None:
    """How a suite certainly leaves its block (the kind of a Signal), or None."""
    if not isinstance(body, cst.BaseSuite) or not body.body:
        return None
    last = body.body[-1]
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    if isinstance(last, cst.Return):
        return "return"
    if isinstance(last, cst.Raise):
        return raises(last)
    if isinstance(last, cst.Break):
        return "break"
    if isinstance(last, cst.Continue):
        return "continue"
    if isinstance(last, cst.Expr) and isinstance(last.value, cst.Call) and is_exit(last.value):
        return "exit"
    if isinstance(last, cst.If) and last.orelse is not None:
        other = last.orelse.body if isinstance(last.orelse, cst.Else) else None
        one, two = terminates(last.body), terminates(other)
        return one if two is not None else None
    return None


def raises(statement: cst.Raise) -> str:
    """The kind of signal of a `raise`: to end the program is no failure."""
    error = statement.exc.func if isinstance(statement.exc, cst.Call) else statement.exc
    return "exit" if isinstance(error, cst.Name) and error.value == "SystemExit" else "raise"


def is_exit(call: cst.Call) -> bool:
    function = call.func
    if isinstance(function, cst.Attribute) and isinstance(function.value, cst.Name):
        return (function.value.value, function.attr.value) in {("sys", "exit"), ("os", "_exit")}
    return isinstance(function, cst.Name) and function.value in {"exit", "quit"}


def exit_fails(call: cst.BaseExpression | None) -> bool:
    """Whether `sys.exit(...)` or `SystemExit(...)` certainly ends the program with an error: its
    argument is a text or a number other than 0."""
    if not isinstance(call, cst.Call) or len(call.args) != 1:
        return False
    status = call.args[0].value
    if isinstance(status, cst.Integer):
        return status.evaluated_value != 0
    if isinstance(status, cst.UnaryOperation):
        return isinstance(status.expression, cst.Integer) and status.expression.evaluated_value != 0
    return isinstance(status, cst.BaseString)


def falls_to_raise(source: Source, node: cst.If | cst.While) -> bool:
    """Whether an error follows a test whose branch returns, if no such test holds.

    Only tests that return stand between it and the `raise`.
    """
    first: cst.CSTNode = node
    while isinstance(source.parent(first), cst.If):  # an `elif`
        first = source.parent(first) or first
    block = source.parent(first)
    if not isinstance(block, cst.IndentedBlock):
        return False
    if not isinstance(source.parent(block), cst.FunctionDef):
        return False
    body: list[cst.CSTNode] = list(block.body)
    after = body[body.index(first) + 1 :]
    return bool(after) and all(map(_returns_if, after[:-1])) and _is_raise(after[-1])


def _returns_if(statement: cst.CSTNode) -> bool:
    while isinstance(statement, cst.If) and terminates(statement.body) == "return":
        if statement.orelse is None:
            return True
        statement = statement.orelse
    return False


def _is_raise(statement: cst.CSTNode) -> bool:
    line = statement.body[-1] if isinstance(statement, cst.SimpleStatementLine) else None
    return isinstance(line, cst.Raise) and raises(line) == "raise"


def guard_end(kind: str) -> str:
    """What a guard lasts until, after code that leaves by a signal of some kind."""
    return {"return": "function", "break": "loop", "continue": "turn"}.get(kind, "program")


def is_in_try(source: Source, node: cst.CSTNode) -> bool:
    """Whether a `try` of the same function catches the errors of a node.

    A `try` catches none if each of its handlers ends with a `raise`.
    """
    child, parent = node, source.parent(node)
    while parent is not None and not isinstance(parent, cst.FunctionDef | cst.Lambda):
        if isinstance(parent, cst.Try) and child is parent.body:
            if any(terminates(handler.body) != "raise" for handler in parent.handlers):
                return True
        child, parent = parent, source.parent(parent)
    return False

"""`while` loops that are tests or loops over elements."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.signals import terminates
from fsdplint.interpreter.values import Symbol
from fsdplint.source.positions import code_children


@dataclass(frozen=True)
class NextLoop:
    """`while True` with `target = next(iterator)` first, which ends with the iterator."""

    iterator: cst.BaseExpression
    target: cst.CSTNode
    body: cst.BaseSuite


def turns_once(node: cst.While) -> bool:
    """Whether a `while` certainly leaves at the end of its first turn, as an `if` does."""
    return terminates(node.body) in {"break", "return", "raise", "exit"} and not _continues(
        node.body
    )


def _continues(node: cst.CSTNode) -> bool:
    """Whether a `continue` of the loop itself is in its body."""
    if isinstance(node, cst.Continue):
        return True
    if isinstance(node, cst.For | cst.While | cst.FunctionDef | cst.Lambda | cst.ClassDef):
        return False
    return any(map(_continues, code_children(node)))


def loop_by_next(run: Run, node: cst.While) -> NextLoop | None:
    """A `while` loop as a loop over the elements of an iterator; None if it is none."""
    return _with_exception(run, node) or _with_default(run, node)


def _with_exception(run: Run, node: cst.While) -> NextLoop | None:
    """`while True:`, `try: x = next(it)`, `except StopIteration: break`."""
    first = node.body.body[0] if node.body.body else None
    if not _is_true(node.test) or not isinstance(first, cst.Try) or len(first.handlers) != 1:
        return None
    caught, handler = first.handlers[0].type, first.handlers[0].body
    ends = len(handler.body) == 1 and terminates(handler) == "break"
    if caught is None or run.text(caught) != "StopIteration" or not ends:
        return None
    if first.orelse is not None or first.finalbody is not None or len(first.body.body) != 1:
        return None
    line = first.body.body[0]
    assigned = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    if not isinstance(assigned, cst.Assign) or len(assigned.targets) != 1:
        return None
    iterator = _next_of(run, assigned.value, 1)
    if iterator is None:
        return None
    rest = cst.IndentedBlock(list(node.body.body[1:]))  # type: ignore[arg-type]
    return NextLoop(iterator, assigned.targets[0].target, rest)


def _with_default(run: Run, node: cst.While) -> NextLoop | None:
    """`while (x := next(it, None)) is not None:`"""
    test = node.test
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    is_not = test.comparisons[0]
    none = isinstance(is_not.comparator, cst.Name) and is_not.comparator.value == "None"
    if not isinstance(is_not.operator, cst.IsNot) or not none:
        return None
    if not isinstance(test.left, cst.NamedExpr):
        return None
    iterator = _next_of(run, test.left.value, 2)
    return None if iterator is None else NextLoop(iterator, test.left.target, node.body)


def _is_true(test: cst.BaseExpression) -> bool:
    return isinstance(test, cst.Name | cst.Integer) and test.value in ("True", "1")


def _next_of(run: Run, node: cst.BaseExpression, count: int) -> cst.BaseExpression | None:
    """The iterator of `next(iterator)`, with so many arguments."""
    if (
        not isinstance(node, cst.Call)
        or len(node.args) != count
        or not isinstance(node.func, cst.Name)
    ):
        return None
    function = run.eval(node.func)
    is_next = isinstance(function, Symbol) and function.name == "builtins.next"
    return node.args[0].value if is_next and not node.args[0].star else None

"""Calls of FSDP1 or of something else: `model = (FSDP if test else f)(model, ...)` becomes an `if`."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.names import FSDP
from fsdplint.migration.text import call, is_repeatable
from fsdplint.syntax.layout import statement_of


def rewrite_call(inlining: Inlining, node: cst.Call) -> bool:
    """Write each call in an arm of its own; whether the statement is such a call."""
    source, chosen = inlining.source, node.func
    if not isinstance(chosen, cst.IfExp):
        return False
    names = [inlining.migration.fsdp1(part) for part in (chosen.body, chosen.orelse)]
    if FSDP not in names or not all(is_repeatable(part) for part in (chosen.body, chosen.orelse)):
        return False
    statement = statement_of(source, node)
    head = _head(inlining, statement)
    if head is None or getattr(statement, "value", None) is not node:
        return False
    given = [_argument(inlining, arg) for arg in node.args]
    lines = []
    for key, part in (f"if {inlining.text(chosen.test)}:", chosen.body), ("else:", chosen.orelse):
        text = call(source, statement, f"{head}{inlining.text(part)}", given, depth=1)
        lines += [key, f"\t{text}"]
    inlining.put_lines(statement, lines)
    return True


def _head(inlining: Inlining, statement: cst.CSTNode) -> str | None:
    """The text before the value of a statement with one target."""
    match statement:
        case cst.Assign() if len(statement.targets) == 1:
            target = statement.targets[0].target
        case cst.AnnAssign():
            target = statement.target
        case cst.Return():
            return "return "
        case cst.Expr():
            return ""
        case _:
            return None
    return f"{inlining.text(target)} = " if is_repeatable(target) else None


def _argument(inlining: Inlining, arg: cst.Arg) -> str:
    name = f"{arg.keyword.value}=" if arg.keyword is not None else arg.star
    return name + inlining.text(arg.value)

"""Values that the program only prints or logs, also as a part of a text."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import definitions, home_of
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source

TEXTS = {"str", "repr"}
PRINTS = {"pprint.pprint", "pprint.pp", "warnings.warn"}
LEVELS = {"debug", "info", "warning", "warn", "error", "critical", "log"}


def is_displayed(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    """Whether the program prints or logs a value and does nothing else with it."""
    parent = source.parent(node)
    if isinstance(parent, cst.FormattedStringExpression | cst.FormattedString | cst.Element):
        return is_displayed(migration, source, parent)
    if isinstance(parent, cst.ConcatenatedString):
        return is_displayed(migration, source, parent)
    if isinstance(parent, cst.Tuple):  # of `"%s %s" % (a, b)`
        operation = source.parent(parent)
        return isinstance(operation, cst.BinaryOperation) and _in_text(migration, source, operation)
    if isinstance(parent, cst.BinaryOperation):
        return _in_text(migration, source, parent)
    call = source.parent(parent) if isinstance(parent, cst.Arg) else None
    if not isinstance(call, cst.Call) or not isinstance(parent, cst.Arg) or parent.star:
        return False
    if parent.keyword is not None or _reads_keys(source, call):
        return False
    if _is_builtin(source, call.func, TEXTS) or migration.symbol(call.func) == "pprint.pformat":
        return is_displayed(migration, source, call)
    return isinstance(source.parent(call), cst.Expr) and _displays(migration, source, call.func)


def _reads_keys(source: Source, call: cst.Call) -> bool:
    """Whether an argument of a call is a format that reads keys of a dict (`"%(name)s"`)."""
    return any("%(" in source.code(arg.value) for arg in call.args)


def _in_text(migration: Migration, source: Source, node: cst.BinaryOperation) -> bool:
    """Whether an operation makes a text (`"%s" % x`) that the program prints or logs."""
    left = node.left
    while isinstance(left, cst.BinaryOperation):
        left = left.left
    texts = cst.SimpleString | cst.FormattedString | cst.ConcatenatedString
    return (
        isinstance(left, texts)
        and "%(" not in source.code(left)
        and is_displayed(migration, source, node)
    )


def _displays(migration: Migration, source: Source, function: cst.BaseExpression) -> bool:
    symbol = migration.symbol(function)
    if _is_builtin(source, function, {"print"}) or symbol in PRINTS:
        return True
    if not isinstance(function, cst.Attribute) or function.attr.value not in LEVELS:
        return False
    if symbol:
        return symbol == f"logging.{function.attr.value}"
    logger = function.value
    found = definitions(source, logger) if isinstance(logger, cst.Name) else None
    return bool(found) and all(
        isinstance(one.value, cst.Call) and migration.symbol(one.value.func) == "logging.getLogger"
        for one in found or ()
    )


def _is_builtin(source: Source, node: cst.BaseExpression, names: set[str]) -> bool:
    return isinstance(node, cst.Name) and node.value in names and home_of(source, node) is None

"""Code that searches names of parameters and modules for the prefix of FSDP1's wrapper.

FSDP2's names do not have the prefix, so removing it has no effect. The code may stay: it also reads
files with FSDP1's names.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import INNER_NAME_SEARCHED
from fsdplint.migration.context import Migration, nodes
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend

INNER = "_fsdp_wrapped_module"
REMOVES = ("replace", "removeprefix", "sub")
PRINTS = ("info", "debug", "warning")


def check_names(migration: Migration, source: Source) -> None:
    """Block on code that searches names for FSDP1's prefix, other than to remove it."""
    if INNER not in source.text:
        return
    for node in nodes(source):
        if not isinstance(node, cst.SimpleString) or INNER not in node.value:
            continue
        if node in migration.uncalled_nodes:
            continue
        if not _takes_off(source, node):
            reason = INNER_NAME_SEARCHED(name=INNER)
            migration.blockers.append(Blocked(source, node, reason))
        else:
            migration.note(f"names no longer contain `{INNER}`, so removing it has no effect")


def _takes_off(source: Source, node: cst.SimpleString) -> bool:
    """Whether a call removes a string from a name, or tests an object for it."""
    arg = source.parent(node)
    if isinstance(arg, cst.Expr):
        return True  # a docstring
    call = source.parent(arg) if isinstance(arg, cst.Arg) else None
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Name):
        if call.func.value == "len":
            return _is_cut_off(source, call)
        return call.func.value in ("hasattr", "print") or (
            call.func.value == "getattr" and len(call.args) == 3
        )
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
        if call.args[0] is arg and call.func.attr.value in (*REMOVES, *PRINTS):
            return not _puts_another(call)
    return _guards_removal(source, node)


def _is_cut_off(source: Source, length: cst.Call) -> bool:
    """Whether `len(prefix)` is the start of a slice, in a branch for names with the prefix."""
    bound = source.parent(length)
    subscript = source.parent(source.parent(bound) or length) if bound is not None else None
    if not isinstance(bound, cst.Slice) or not isinstance(subscript, cst.Subscript):
        return False
    branch = source.parent(subscript)
    while branch is not None and not isinstance(branch, cst.If | cst.IfExp):
        branch = source.parent(branch)
    return branch is not None and any(
        isinstance(one, cst.SimpleString) and INNER in one.value and _guards_removal(source, one)
        for one in descend(branch.test)
    )


def _guards_removal(source: Source, node: cst.SimpleString) -> bool:
    """Whether a test for the prefix only chooses the name without it.

    FSDP2's names fail the test, and are what the branch makes of FSDP1's.
    """
    name, test = _tested_name(source, node)
    parent = source.parent(test)
    while isinstance(parent, cst.BooleanOperation) and isinstance(parent.operator, cst.And):
        test, parent = parent, source.parent(parent)
    if isinstance(parent, cst.IfExp) and parent.test is test:
        return _is_removal(source, parent.body, name) and source.code(parent.orelse) == name
    if not isinstance(parent, cst.If) or parent.test is not test or parent.orelse is not None:
        return False
    return all(_assigns_removal(source, line, name) for line in parent.body.body)


def _tested_name(source: Source, node: cst.SimpleString) -> tuple[str, cst.CSTNode]:
    """The name that `name.startswith(prefix)` or `prefix in name` tests, and the test."""
    parent = source.parent(node)
    if isinstance(parent, cst.Arg):
        call = source.parent(parent)
        if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
            if call.func.attr.value == "startswith" and len(call.args) == 1:
                return source.code(call.func.value), call
    if isinstance(parent, cst.Comparison) and parent.left is node and len(parent.comparisons) == 1:
        (target,) = parent.comparisons
        if isinstance(target.operator, cst.In):
            return source.code(target.comparator), parent
    return "", node


def _assigns_removal(source: Source, line: cst.CSTNode, name: str) -> bool:
    """Whether a line gives a name the text without the prefix."""
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else line
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return False
    return source.code(small.targets[0].target) == name and _is_removal(source, small.value, name)


def _is_removal(source: Source, value: cst.BaseExpression, name: str) -> bool:
    """Whether an expression is a name without the prefix."""
    if isinstance(value, cst.Subscript) and len(value.slice) == 1:
        part = value.slice[0].slice
        cut = isinstance(part, cst.Slice) and part.upper is None and part.lower is not None
        return cut and source.code(value.value) == name
    if (
        not isinstance(value, cst.Call)
        or not isinstance(value.func, cst.Attribute)
        or not value.args
    ):
        return False
    removed = value.args[0].value
    return (
        source.code(value.func.value) == name
        and value.func.attr.value in REMOVES
        and isinstance(removed, cst.SimpleString)
        and INNER in removed.value
        and not _puts_another(value)
    )


def _puts_another(call: cst.Call) -> bool:
    """Whether `name.replace(prefix, other)` leaves another text than the name without the prefix."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "replace":
        return False
    texts = [
        arg.value.evaluated_value
        for arg in call.args[:2]
        if isinstance(arg.value, cst.SimpleString)
    ]
    if len(texts) != 2:
        return True
    old, new = (text.decode() if isinstance(text, bytes) else text for text in texts)
    return new not in {old.replace(part, "") for part in (f"{INNER}.", f".{INNER}", INNER)}

"""Code that searches names of parameters and modules for the prefix of FSDP1's wrapper.

FSDP2's names do not have the prefix, so removing it has no effect. The code may stay: it also reads
files with FSDP1's names.
"""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import INNER_NAME_SEARCHED
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.training.compared_names import compare_without_prefix, is_compared
from fsdplint.migration.training.prefix_reads import PrefixRead, reads_of, text_of
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
        here = PrefixRead(source, node, text_of(node))
        reads = [here] if _leaves_part_out(here) else reads_of(migration, source, node)
        if reads is not None and all(map(_takes_off, reads)):
            migration.note(f"names no longer contain `{INNER}`, so removing it has no effect")
        elif reads is not None and is_compared(reads):
            compare_without_prefix(migration, source, node)
        else:
            reason = INNER_NAME_SEARCHED(name=INNER)
            migration.blockers.append(Blocked(source, node, reason))


def _takes_off(read: PrefixRead) -> bool:
    """Whether a call removes a prefix from a name, or tests an object for it."""
    source = read.source
    arg = source.parent(read.node)
    if isinstance(arg, cst.Expr):
        return True  # a docstring
    call = source.parent(arg) if isinstance(arg, cst.Arg) else None
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Name):
        if call.func.value == "len":
            return _is_cut_off(read, call)
        return call.func.value in ("hasattr", "print") or (
            call.func.value == "getattr" and len(call.args) == 3
        )
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
        if call.args[0] is arg and call.func.attr.value in (*REMOVES, *PRINTS):
            return not _puts_another(read, call)
    return _substitutes(read) or _guards_removal(read) or _leaves_part_out(read)


def _leaves_part_out(read: PrefixRead) -> bool:
    """Whether a comprehension leaves the prefix out of the parts of a name:
    `[part for part in name.split(".") if part != prefix]`."""
    source = read.source
    test = source.parent(read.node)
    operator: type[cst.BaseCompOp] = cst.NotEqual
    if isinstance(test, cst.Element):  # `part not in {prefix, other}`
        display = source.parent(test)
        assert display is not None
        test = source.parent(display)
        operator = cst.NotIn
    if isinstance(test, cst.ComparisonTarget):
        test = source.parent(test)
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    sides = [test.left, test.comparisons[0].comparator]
    tested = next((side for side in sides if isinstance(side, cst.Name)), None)
    if not isinstance(test.comparisons[0].operator, operator) or tested is None:
        return False
    part = source.parent(test)
    while isinstance(part, cst.BooleanOperation) and isinstance(part.operator, cst.And):
        part = source.parent(part)
    loop = source.parent(part) if isinstance(part, cst.CompIf) else None
    if not isinstance(loop, cst.CompFor) or read.text != INNER:
        return False
    split = loop.iter
    return (
        isinstance(loop.target, cst.Name)
        and loop.target.value == tested.value
        and isinstance(split, cst.Call)
        and isinstance(split.func, cst.Attribute)
        and split.func.attr.value == "split"
    )


def _substitutes(read: PrefixRead) -> bool:
    """Whether a compiled pattern removes a prefix: `pattern.sub("", name)`."""
    func = read.source.parent(read.node)
    call = read.source.parent(func) if isinstance(func, cst.Attribute) else None
    if not isinstance(call, cst.Call) or call.func is not func:
        return False
    assert isinstance(func, cst.Attribute)
    return func.attr.value == "sub" and _is_nothing(call, 0)


def _is_nothing(call: cst.Call, position: int) -> bool:
    """Whether a pattern is replaced by nothing, or by the dot that a name keeps."""
    given = call.args[position : position + 1]
    return (
        bool(given)
        and isinstance(given[0].value, cst.SimpleString)
        and (text_of(given[0].value) in ("", "."))
    )


def _is_cut_off(read: PrefixRead, length: cst.Call) -> bool:
    """Whether `len(prefix)` is the start of a slice, in a branch for names with the prefix."""
    source = read.source
    bound = source.parent(length)
    subscript = source.parent(source.parent(bound) or length) if bound is not None else None
    if not isinstance(bound, cst.Slice) or not isinstance(subscript, cst.Subscript):
        return False
    branch = source.parent(subscript)
    while branch is not None and not isinstance(branch, cst.If | cst.IfExp):
        branch = source.parent(branch)
    return branch is not None and any(
        _is_prefix(read, one) and _guards_removal(replace(read, node=one))
        for one in descend(branch.test)
    )


def _is_prefix(read: PrefixRead, node: cst.CSTNode) -> bool:
    """Whether code is a text with the prefix, or the name that reads it."""
    if isinstance(node, cst.SimpleString):
        return INNER in node.value
    return isinstance(node, cst.Name) and node.value == read.source.code(read.node)


def _guards_removal(read: PrefixRead) -> bool:
    """Whether a test for the prefix only chooses the name without it.

    FSDP2's names fail the test, and are what the branch makes of FSDP1's.
    """
    source = read.source
    name, test = _tested_name(source, read.node)
    parent = source.parent(test)
    while isinstance(parent, cst.BooleanOperation) and isinstance(parent.operator, cst.And):
        test, parent = parent, source.parent(parent)
    if isinstance(parent, cst.IfExp) and parent.test is test:
        return _is_removal(read, parent.body, name) and source.code(parent.orelse) == name
    if not isinstance(parent, cst.If | cst.While) or parent.test is not test:
        return False
    if parent.orelse is not None:
        return False
    return all(_assigns_removal(read, line, name) for line in parent.body.body)


def _tested_name(source: Source, node: cst.CSTNode) -> tuple[str, cst.CSTNode]:
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
            return source.code(target.comparator), _any_of(source, parent)
    return "", node


def _any_of(source: Source, test: cst.Comparison) -> cst.CSTNode:
    """The call `any(prefix in name for prefix in prefixes)` of a test; else the test itself."""
    around = source.parent(test)
    if not isinstance(around, cst.GeneratorExp) or around.elt is not test:
        return test
    inner = around.for_in
    call = source.parent(source.parent(around) or around)
    if inner.ifs or inner.inner_for_in is not None or not isinstance(call, cst.Call):
        return test
    return call if isinstance(call.func, cst.Name) and call.func.value == "any" else test


def _assigns_removal(read: PrefixRead, line: cst.CSTNode, name: str) -> bool:
    """Whether a line gives a name the text without the prefix."""
    if isinstance(line, cst.For) and line.orelse is None and isinstance(line.target, cst.Name):
        return line.target.value == read.source.code(read.node) and all(
            _assigns_removal(read, one, name) for one in line.body.body
        )
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else line
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return False
    assigned = read.source.code(small.targets[0].target) == name
    return assigned and _is_removal(read, small.value, name)


def _is_removal(read: PrefixRead, value: cst.BaseExpression, name: str) -> bool:
    """Whether an expression is a name without the prefix."""
    code = read.source.code
    if isinstance(value, cst.Subscript) and len(value.slice) == 1:
        part = value.slice[0].slice
        cut = isinstance(part, cst.Slice) and part.upper is None and part.lower is not None
        return cut and code(value.value) == name
    if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute):
        return False
    return (
        bool(value.args)
        and code(value.func.value) == name
        and value.func.attr.value in REMOVES
        and _is_prefix(read, value.args[0].value)
        and not _puts_another(read, value)
    )


def _puts_another(read: PrefixRead, call: cst.Call) -> bool:
    """Whether `name.replace(prefix, other)` leaves another text than the name without the prefix."""
    if not isinstance(call.func, cst.Attribute):
        return False
    if call.func.attr.value == "sub":
        return not _is_nothing(call, 1)
    if call.func.attr.value != "replace":
        return False
    texts = [_text(read, arg.value) for arg in call.args[:2]]
    if len(texts) != 2 or None in texts:
        return True
    old, new = texts
    return new not in {(old or "").replace(part, "") for part in (f"{INNER}.", f".{INNER}", INNER)}


def _text(read: PrefixRead, node: cst.BaseExpression) -> str | None:
    """The text of a string or a name; None if it is not known."""
    if isinstance(node, cst.SimpleString):
        return text_of(node)
    if not isinstance(node, cst.Name):
        return None
    return read.text if node.value == read.source.code(read.node) else read.texts.get(node.value)

"""Loops over all modules of a model that test for FSDP1's wrapper.

    for module in model.modules():
        if isinstance(module, FSDP):
            continue
        module.track = True

`modules()` gives a wrapper and the module inside of it, and `fully_shard` makes them one. So code for
modules that are no wrappers is for all modules, and only code for wrappers tests for FSDPModule.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.context import Migration
from fsdplint.migration.names import WRAPPING
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend

TITLE = "Visit modules inside of FSDP1's wrappers, which are the modules themselves"
NOTE = "a loop over modules no longer runs code for modules without a wrapper on those that are sharded"
DETAIL = (
    "With FSDP1 the loop visits a wrapper and the module inside of it, which are one module with "
    "FSDP2. Let the code run for each module."
)
_ITERATES = ("modules", "named_modules")
_LISTS = ("list", "tuple", "reversed", "enumerate", "sorted")


@dataclass
class _Test:
    """The test that a question for the class is part of.

    Attributes:
        whole: the expression of an `if`.
        asks_for: whether the test needs the module to be a wrapper, if it is true.
        every: whether the test is true only if the question has this answer. Otherwise it is true
            if the question has it, and may be true anyway.
    """

    whole: cst.BaseExpression
    asks_for: bool
    every: bool


def rewrite(migration: Migration, source: Source, ask: cst.Call | None) -> bool:
    """Rewrite `isinstance(module, FSDP)` in a loop over modules, where code for modules without a
    wrapper depends on it. Returns whether the question is gone."""
    if ask is None or len(ask.args) != 2:
        return False
    loop = _loop_of(source, ask)
    if loop is None or _wraps(migration, loop):
        return False
    test = _test_of(source, ask)
    holder = source.parent(test.whole)
    if isinstance(holder, cst.CompIf):
        if test.every and test.asks_for:
            return False
        place: cst.CSTNode | None = ask if test.every else None
    elif isinstance(holder, cst.If) and holder.test is test.whole:
        if not _is_for_others(test, holder):
            _stay_in_loop(migration, source, test, holder)
            return False
        place = _place(test, holder)
    else:
        return False
    if place is None or not migration.fsdp1(ask.args[1].value):
        migration.note(NOTE, source, ask, detail=DETAIL, unsafe=True)
        return False
    migration.account_for(source, ask)
    migration.step(source, ask, TITLE)
    if place is holder:
        migration.delete_statement(source, holder)
    else:
        _drop(migration, source, ask, holder)
    return True


def _is_for_others(test: _Test, branch: cst.If) -> bool:
    """Whether a branch decides what runs for modules that are no wrappers."""
    skips = _only_skips(branch.body)
    if branch.orelse is not None:
        other = branch.orelse.body if isinstance(branch.orelse, cst.Else) else None
        return skips or other is None or not _only_skips(other) or not test.asks_for
    return skips == test.asks_for


def _place(test: _Test, branch: cst.If) -> cst.CSTNode | None:
    """What goes: the statement, or the question in it; None if the rest would mean something else."""
    if branch.orelse is not None:
        return None
    if _only_skips(branch.body):
        return branch if test.every else test.whole
    return test.whole if test.every and not _last_continue(branch.body) else None


def _stay_in_loop(migration: Migration, source: Source, test: _Test, branch: cst.If) -> None:
    """Let the code after a branch for wrappers run, too: it runs for the modules inside of them."""
    last = _last_continue(branch.body)
    if last is None or _only_skips(branch.body):
        return
    if test.every and branch.orelse is None:
        migration.delete_statement(source, last)
    else:
        migration.note(NOTE, source, branch, detail=DETAIL, unsafe=True)


def _drop(migration: Migration, source: Source, ask: cst.Call, holder: cst.CSTNode) -> None:
    """Leave a question out of the test of an `if` or a comprehension."""
    node: cst.CSTNode = ask
    parent = source.parent(node)
    while isinstance(parent, cst.UnaryOperation):
        node, parent = parent, source.parent(parent)
    if isinstance(parent, cst.BooleanOperation):
        other = parent.right if parent.left is node else parent.left
        migration.substitute(source, parent, migration.text(source, other))
    elif isinstance(holder, cst.CompIf):
        start, end = source.span(holder)
        begin = len(source.text[:start].rstrip())
        migration.substitute_span(source, begin, end, "")
    else:
        migration.own(source, holder)
        migration.rewrite.unwrap(source, holder)


def _loop_of(source: Source, ask: cst.Call) -> cst.For | cst.CompFor | None:
    """The loop over modules whose variable a question is about."""
    asked = ask.args[0].value
    if not isinstance(asked, cst.Name):
        return None
    for outer in ancestors(source, ask):
        if isinstance(outer, cst.FunctionDef | cst.Lambda):
            return None
        loop = outer if isinstance(outer, cst.For) else getattr(outer, "for_in", None)
        if not isinstance(loop, cst.For | cst.CompFor):
            continue
        if any(isinstance(x, cst.Name) and x.value == asked.value for x in descend(loop.target)):
            return loop if _goes_over_modules(loop.iter) else None
    return None


def _goes_over_modules(node: cst.BaseExpression) -> bool:
    while isinstance(node, cst.Call):
        if isinstance(node.func, cst.Attribute):
            return node.func.attr.value in _ITERATES
        if not isinstance(node.func, cst.Name) or node.func.value not in _LISTS or not node.args:
            return False
        node = node.args[0].value
    return False


def _wraps(migration: Migration, loop: cst.For | cst.CompFor) -> bool:
    """Whether a loop wraps modules: it leaves those out that it has wrapped before."""
    return any(
        isinstance(part, cst.Call) and migration.fsdp1(part.func) in WRAPPING
        for part in descend(loop)
    )


def _test_of(source: Source, ask: cst.Call) -> _Test:
    node: cst.BaseExpression = ask
    asks_for, operator = True, None
    while True:
        parent = source.parent(node)
        if isinstance(parent, cst.UnaryOperation) and isinstance(parent.operator, cst.Not):
            asks_for = not asks_for
            if operator is not None:
                operator = cst.Or if operator is cst.And else cst.And
        elif isinstance(parent, cst.BooleanOperation) and operator in (None, type(parent.operator)):
            operator = type(parent.operator)
        else:
            return _Test(node, asks_for, operator is not cst.Or)
        node = parent


def _only_skips(body: cst.BaseSuite) -> bool:
    """Whether a block only goes on with the next module, or does nothing."""
    statements = [part for line in body.body for part in getattr(line, "body", ()) or (line,)]
    return all(isinstance(part, cst.Continue | cst.Pass) for part in statements)


def _last_continue(body: cst.BaseSuite) -> cst.Continue | None:
    """The `continue` at the end of a block."""
    last = body.body[-1]
    small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
    return small if isinstance(small, cst.Continue) else None

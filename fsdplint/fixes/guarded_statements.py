"""Statements under a test of the rank, and the statements that they may overtake."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.fixes.rank_conditions import other_condition
from fsdplint.fixes.syntax import names
from fsdplint.interpreter import Program
from fsdplint.source.positions import descend
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.dotted import bound_by, leaves, mentions
from fsdplint.syntax.enclosing import Function, ancestors
from fsdplint.trace import Guard

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
# A statement is not moved out of these.
BOUNDARIES = (
    *(cst.FunctionDef, cst.Lambda, cst.ClassDef, cst.For, cst.While, cst.If, cst.Try, cst.TryStar),
    cst.Match,
)
# Calls that a collective may overtake, and those of files, if it uses none of these itself.
_REPORTS = {"print", "info", "debug", "warning", "log"}
_MAKES_FOLDERS = {"makedirs", "mkdir"}
_WRITES = {*_MAKES_FOLDERS, "save", "save_file", "save_pretrained", "dump"}
_CHANGES = {"write", "remove", "unlink", "rmtree", "copy", "copyfile", "move"}
_USES_FILES = re.compile(r"save|load")
_COMPOUND = (cst.If, cst.With, cst.For, cst.Try)
_Arm = cst.If | cst.With | cst.For | cst.Try | cst.Else | cst.Finally | cst.ExceptHandler


@dataclass(frozen=True)
class GuardedStatement:
    """A statement that a test of the rank keeps some ranks from.

    Attributes:
        test: the `if` statement.
        statement: a statement in the body of the test, or after the test if the test leaves the
            function (`if rank != 0: return`).
        before: the statements between the test and this one. A hoisted statement overtakes them.
        after: the statements after this one in its block.
        condition: the rank-invariant condition that the test asks besides the rank; a hoisted
            statement needs it too. Empty if there is none.
    """

    test: cst.If
    statement: Statement
    before: tuple[cst.CSTNode, ...]
    after: tuple[cst.CSTNode, ...]
    condition: str = ""

    def lines(self, hoisted: list[str]) -> list[str]:
        """Lines to put before the test, under its other condition."""
        return (
            [f"if {self.condition}:", *("\t" + line for line in hoisted)]
            if self.condition
            else hoisted
        )


def guarded_statement(
    source: Source, node: cst.CSTNode, guard: Guard, program: Program | None = None
) -> GuardedStatement | None:
    """The statement that holds a node, if the node stands directly under a guard; else None.

    Directly means that the test has no other branch, that only the rank decides whether a rank
    reaches the node, and that no loop, function or other condition is between the two.

    program: if given, the test may also ask a rank-invariant condition.
    """
    if not isinstance(guard.site, NodeSite) or guard.site.source is not source:
        return None
    statement: cst.CSTNode = node
    for parent in ancestors(source, node):
        if isinstance(parent, cst.IndentedBlock | cst.Module | cst.SimpleStatementSuite):
            body = list(parent.body)
            number = next((n for n, item in enumerate(body) if item is statement), None)
            if number is None:
                return None
            owner = source.parent(parent)
            if isinstance(owner, cst.If) and _is_test(source, owner, guard):
                if owner.body is not parent or owner.orelse is not None or _is_elif(source, owner):
                    return None
                condition = other_condition(source, owner.test, True, program)
                if not isinstance(statement, Statement) or condition is None:
                    return None
                before, after = tuple(body[:number]), tuple(body[number + 1 :])
                return GuardedStatement(owner, statement, before, after, condition)
            for earlier, other in enumerate(body[:number]):
                if isinstance(other, cst.If) and _is_test(source, other, guard):
                    if other.orelse is not None or not isinstance(statement, Statement):
                        return None
                    condition = other_condition(source, other.test, False, program)
                    if not leaves(other.body.body[-1]) or condition is None:
                        return None
                    between = tuple(body[earlier + 1 : number])
                    return GuardedStatement(
                        other, statement, between, tuple(body[number + 1 :]), condition
                    )
        if isinstance(parent, BOUNDARIES):
            return None
        if isinstance(parent, Statement):
            statement = parent
    return None


@dataclass(frozen=True)
class _Moved:
    """The names that moved code uses, and whether it may save or load something."""

    names: set[str]
    uses_files: bool


def _is_test(source: Source, statement: cst.If, guard: Guard) -> bool:
    """Whether this `if` is the test of the guard."""
    assert isinstance(guard.site, NodeSite)
    node = guard.site.node
    return node is statement or node is statement.test


def _is_elif(source: Source, statement: cst.If) -> bool:
    parent = source.parent(statement)
    return isinstance(parent, cst.If) and parent.orelse is statement


def may_overtake(source: Source, node: cst.CSTNode, place: GuardedStatement) -> bool:
    """Whether a node may move before the statements between it and the test.

    It may overtake prints, assignments of names that it does not use, and, if it uses no files,
    calls that make or remove them, also in blocks. These statements must not use what the node's
    statement assigns.
    """
    moved = _Moved(names(node), _uses_files(node))
    needed = moved.names
    inside = list(_before_inside(source, node, place.statement))
    if needed & bound_by(place.test.test) or not liftable(source, node, place.statement):
        return False
    if not all(_may_be_passed(other, moved) for other in (*place.before, *inside)):
        return False
    return not any(mentions(other, bound_by(place.statement)) for other in place.before)


def _before_inside(
    source: Source, node: cst.CSTNode, statement: cst.CSTNode
) -> Iterator[cst.CSTNode]:
    """The statements before a node in the same statement: in a `with`, or on the same line."""
    inner = node
    while inner is not statement:
        outer = source.parent(inner)
        if outer is None:
            return
        if isinstance(
            outer, cst.IndentedBlock | cst.SimpleStatementSuite | cst.SimpleStatementLine
        ):
            body: list[cst.CSTNode] = list(outer.body)
            yield from body[: body.index(inner)]
        inner = outer


def liftable(source: Source, node: cst.CSTNode, statement: cst.CSTNode) -> bool:
    """Whether a node may be evaluated before its statement.

    It may not if its statement evaluates it conditionally, or if it uses a name that is bound only
    where it stands: the variable of a comprehension, or the target of a `with`.
    """
    if node is statement:
        return True
    needed = names(node)
    for outer in (*ancestors_below(source, node, statement), statement):
        if isinstance(outer, cst.BooleanOperation | cst.IfExp | Function):
            return False
        bound: set[str] = set()
        if isinstance(outer, cst.BaseComp):
            bound = bound_by(outer)
        elif isinstance(outer, cst.With):
            bound = {name for item in outer.items for name in bound_by(item)}
        if needed & bound:
            return False
    return True


def _uses_files(node: cst.CSTNode) -> bool:
    """Whether code may save or load something."""
    calls = [one for one in descend(node) if isinstance(one, cst.Call)]
    return any(_USES_FILES.search(_called_name(one)) for one in calls)


def _called_name(call: cst.Call) -> str:
    last = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return last.value if isinstance(last, cst.Name) else ""


def _may_be_passed(statement: cst.CSTNode, moved: _Moved) -> bool:
    if isinstance(statement, cst.SimpleStatementLine):
        return all(_may_be_passed(small, moved) for small in statement.body)
    if isinstance(statement, _COMPOUND):
        return _may_pass_block(statement, moved)
    if isinstance(statement, cst.Pass):
        return True
    if isinstance(statement, cst.Del):
        return not names(statement) & moved.names
    if isinstance(statement, cst.Assign | cst.AnnAssign):
        return not _binds(statement, moved.names)
    if isinstance(statement, cst.Expr):
        if isinstance(statement.value, cst.SimpleString):
            return True
        return isinstance(statement.value, cst.Call) and _may_pass_call(statement.value, moved)
    return False


def _may_pass_call(call: cst.Call, moved: _Moved) -> bool:
    name = _called_name(call)
    if name in _REPORTS or (name in _MAKES_FOLDERS and _allows_existing(call)):
        return True
    if moved.uses_files:
        return False
    return name in _WRITES or (name in _CHANGES and not names(call) & moved.names)


def _allows_existing(call: cst.Call) -> bool:
    """Whether a call makes a folder only if it is not there."""
    return any(
        arg.keyword is not None
        and arg.keyword.value == "exist_ok"
        and is_constant(arg.value, "True")
        for arg in call.args
    )


def _may_pass_block(statement: _Arm, moved: _Moved) -> bool:
    """Whether all statements of a block, and of its other arms, may be overtaken."""
    if _binds(statement, moved.names):
        return False
    bodies = [arm.body for arm in _arms(statement)]
    return all(
        isinstance(body, cst.IndentedBlock) and all(_may_be_passed(one, moved) for one in body.body)
        for body in bodies
    )


def _arms(statement: _Arm) -> Iterator[_Arm]:
    """A statement with a block, and its other arms and handlers."""
    yield statement
    for name in ("orelse", "finalbody"):
        if (other := getattr(statement, name, None)) is not None:
            yield from _arms(other)
    if isinstance(statement, cst.Try):
        yield from statement.handlers


def _binds(statement: cst.CSTNode, needed: set[str]) -> bool:
    return any(name.split(".")[0] in needed for name in bound_by(statement))


def ancestors_below(source: Source, node: cst.CSTNode, outer: cst.CSTNode) -> list[cst.CSTNode]:
    """The ancestors of a node inside `outer`, innermost first."""
    result = []
    for parent in ancestors(source, node):
        if parent is outer:
            break
        result.append(parent)
    return result

"""Loads of an optimizer's state directly after the branches that make the state.

    try:
        state = FSDP.optim_state_dict_to_load(model, optimizer, saved)
    except RuntimeError:
        state = saved
    optimizer.load_state_dict(state)

torch's function converts and loads in one call, so the load moves to the end of each branch. The
handlers of a `try` then cover the load, too. Where one of them leaves without an error, the program may
go on without a state that it cannot load, so that the migration is unsafe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.context import Migration, expression
from fsdplint.migration.names import FSDP
from fsdplint.migration.state_dicts.kinds import OPTIMIZER_METHODS
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import statement_of

HANDLED = "an error of the load of the optimizer's state is handled as one of its conversion is"
HANDLED_DETAIL = "torch converts and loads in one call."
_LEAVES = (cst.Raise, cst.Return, cst.Continue, cst.Break)


@dataclass(frozen=True)
class BranchLoad:
    """A load after the branches of an `if` or `try`.

    Attributes:
        load: the call that loads the state.
        choice: the statement with the branches.
        others: the last statements of the other branches that reach the load.
        has_rest: whether an `if` without `else` may skip all branches.
    """

    load: cst.Call
    choice: cst.If | cst.Try
    others: tuple[cst.CSTNode, ...]
    has_rest: bool


def find(source: Source, node: cst.Call, unwrapped: Collection[cst.CSTNode]) -> BranchLoad | None:
    """The load after the branches, of which one ends with an assignment of a call's result.

    unwrapped: blocks that lose their heads.
    """
    statement = statement_of(source, node)
    body = _last_in(source, statement)
    while body is not None and (owner := source.parent(body)) in unwrapped:
        body = _last_in(source, owner) if owner is not None else None
    if body is None or not isinstance(statement, cst.Assign) or statement.value is not node:
        return None
    branches = _branches(source, body)
    if branches is None:
        return None
    choice, others, has_rest = branches
    load = _call_after(source, choice, source.code(statement.targets[0].target))
    if load is None or len(statement.targets) != 1:
        return None
    ends = [end for other in others if (end := _end_of(other)) is not None]
    return BranchLoad(load, choice, tuple(ends), has_rest)


def move(
    migration: Migration, source: Source, node: cst.Call, branch: BranchLoad, moved: set[cst.Call]
) -> None:
    """Put the new text of a call, which loads the state, in its branch, and the load in the others.

    moved: the loads that have moved before, from other branches.
    """
    migration.substitute(source, statement_of(source, node), migration.text(source, node))
    if branch.load in moved:
        return
    moved.add(branch.load)
    if isinstance(branch.choice, cst.Try):
        note_handlers(migration, source, node)
    name = source.code(branch.load.args[0].value)
    load = expression(migration, source, branch.load)
    method = expression(migration, source, branch.load.func)
    for end in branch.others:
        value = _assigned(source, end, name)
        if value is None:
            migration.rewrite.insert_after(source, end, [load])
        elif not _converts(migration, value):
            given = expression(migration, source, value)
            migration.substitute(source, end, f"{method}({given})")
    if branch.has_rest:
        migration.replace_statement(source, branch.load, ["else:", f"\t{load}"])
    else:
        migration.delete_statement(source, branch.load)


def note_handlers(migration: Migration, source: Source, node: cst.Call) -> None:
    """Note that the handlers around a call get the errors of the load."""
    for outer in ancestors(source, node):
        if isinstance(outer, cst.Try):
            silent = any(map(_is_silent, outer.handlers))
            migration.note(HANDLED, source, node, detail=HANDLED_DETAIL, unsafe=silent)
            return


def _assigned(source: Source, statement: cst.CSTNode, name: str) -> cst.BaseExpression | None:
    """What a statement assigns to a variable, if it does nothing else."""
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return None
    return statement.value if source.code(statement.targets[0].target) == name else None


def _converts(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether a call converts an optimizer's state for FSDP1."""
    name = migration.fsdp1(node.func) if isinstance(node, cst.Call) else ""
    return name.removeprefix(f"{FSDP}.") in OPTIMIZER_METHODS


def _last_in(source: Source, statement: cst.CSTNode) -> cst.IndentedBlock | None:
    """The block whose last statement this is."""
    line: cst.CSTNode | None = statement
    if not isinstance(statement, cst.BaseCompoundStatement):
        line = source.parent(statement)
        if not isinstance(line, cst.SimpleStatementLine) or line.body[-1] is not statement:
            return None
    body = source.parent(line) if line is not None else None
    return body if isinstance(body, cst.IndentedBlock) and body.body[-1] is line else None


def _branches(
    source: Source, body: cst.IndentedBlock
) -> tuple[cst.If | cst.Try, list[cst.BaseSuite], bool] | None:
    """The statement with a branch, its other branches, and whether it may skip them all."""
    owner = source.parent(body)
    if isinstance(owner, cst.Try):
        if owner.body is not body or owner.orelse is not None or owner.finalbody is not None:
            return None
        return owner, [handler.body for handler in owner.handlers], False
    if isinstance(owner, cst.Else):
        owner = source.parent(owner)
    if not isinstance(owner, cst.If):
        return None
    while isinstance(above := source.parent(owner), cst.If):
        owner = above
    bodies = list(_bodies(owner))
    has_rest = len(bodies) == sum(1 for one in _ifs(owner))
    return owner, [other for other in bodies if other is not body], has_rest


def _ifs(first: cst.If) -> Iterator[cst.If]:
    branch: cst.If | cst.Else | None = first
    while isinstance(branch, cst.If):
        yield branch
        branch = branch.orelse


def _bodies(first: cst.If) -> Iterator[cst.BaseSuite]:
    for branch in _ifs(first):
        yield branch.body
        if isinstance(branch.orelse, cst.Else):
            yield branch.orelse.body


def _call_after(source: Source, choice: cst.CSTNode, name: str) -> cst.Call | None:
    """The statement after the branches, if it is a call with the variable as its argument."""
    around = source.parent(choice)
    if not isinstance(around, cst.IndentedBlock | cst.Module):
        return None
    number = next(n for n, one in enumerate(around.body) if one is choice)
    line = around.body[number + 1] if number + 1 < len(around.body) else None
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    small = line.body[0]
    call = small.value if isinstance(small, cst.Expr) else None
    if isinstance(call, cst.Call) and len(call.args) == 1:
        return call if source.code(call.args[0].value) == name else None
    return None


def _end_of(suite: cst.BaseSuite) -> cst.CSTNode | None:
    """The last statement of a branch, None if it leaves."""
    last: cst.CSTNode = suite.body[-1]
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return None if isinstance(last, _LEAVES) else last


def _is_silent(handler: cst.ExceptHandler) -> bool:
    """Whether a handler leaves the block without an error."""
    last: cst.CSTNode = handler.body.body[-1]
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, cst.Return | cst.Continue | cst.Break)

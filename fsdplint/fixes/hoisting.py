"""Move a collective call out of a rank test."""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.guarded_statements import (
    GuardedStatement,
    ancestors_below,
    guarded_statement,
    may_overtake,
)
from fsdplint.fixes.rank_guard import statement_lines
from fsdplint.fixes.syntax import call_at, free_name, is_within
from fsdplint.interpreter import Program
from fsdplint.source.positions import code_children
from fsdplint.source.source import Source
from fsdplint.syntax import layout
from fsdplint.syntax.arguments import chooses_none
from fsdplint.syntax.dotted import bound_by, dotted_name, mentions
from fsdplint.syntax.enclosing import function_around
from fsdplint.trace import Guard, Site


def hoist_collective(
    rewrite: Rewrite, site: Site, guard: Guard, program: Program | None = None
) -> bool:
    """Move a collective call out of the rank test around it.

    A statement that only assigns the call's result moves before the test. In other statements, the
    call moves and its result gets a name. A call that is a statement and ends the body (a barrier)
    moves after the test.

    Returns:
        Whether the call could be moved.
    """
    target = call_at(site)
    if target is None:
        return False
    source, call = target
    place = guarded_statement(source, call, guard, program)
    if place is None or _lacks_operand(source, call, place):
        return False
    statement = layout.statement_of(source, call)
    if isinstance(statement, cst.Expr) and statement.value is call:
        if isinstance(place.statement, cst.With):
            return False  # the call may need the context
        return _move_statement(rewrite, source, statement, place)
    if isinstance(place.statement, cst.With):
        return _move_with(rewrite, source, place)
    return hoist(rewrite, source, call, source.code(call), place, suggest_name(call))


def _lacks_operand(source: Source, call: cst.Call, place: GuardedStatement) -> bool:
    """Whether a rank for which the test fails may have None for something that the call uses.

    Either the test asks for it (`if state is not None:`), or the function binds it to None, too.
    """
    return mentions(call, _tested_presence(place.test.test) | _bound_to_none(source, call))


def _tested_presence(test: cst.BaseExpression) -> set[str]:
    """The dotted names that a test asks for None or for their truth."""
    if isinstance(test, cst.BooleanOperation):
        return _tested_presence(test.left) | _tested_presence(test.right)
    if isinstance(test, cst.UnaryOperation):
        return _tested_presence(test.expression)
    if isinstance(test, cst.Comparison):
        with_none = any(chooses_none(one.comparator) for one in test.comparisons)
        return _tested_presence(test.left) if with_none else set()
    name = dotted_name(test)
    return {name} if name else set()


def _bound_to_none(source: Source, node: cst.CSTNode) -> set[str]:
    """The names that the function around a node assigns None to, perhaps on some ranks only."""
    found: set[str] = set()
    stack: list[cst.CSTNode] = [function_around(source, node)]
    while stack:
        one = stack.pop()
        if isinstance(one, cst.Assign | cst.AnnAssign) and chooses_none(one.value):
            found |= bound_by(one)
        stack += code_children(one)
    return found


def _move_statement(
    rewrite: Rewrite, source: Source, statement: cst.Expr, place: GuardedStatement
) -> bool:
    if layout.string_lines(source, statement):
        return False
    lines = statement_lines(source, statement, source.code(statement))
    in_body = is_within(source, place.statement, place.test)
    if in_body and not place.after and place.before:
        if place.condition:
            return False  # the body may change the condition
        bound = {name for one in place.before for name in bound_by(one)}
        if mentions(statement, bound):
            return False  # the other ranks lack what the body binds
        rewrite.insert_after(source, place.test, lines)
    elif may_overtake(source, statement, place):
        rewrite.insert_before(source, place.test, place.lines(lines))
    else:
        return False
    rewrite.delete_statement(source, statement)
    return True


def _move_with(rewrite: Rewrite, source: Source, place: GuardedStatement) -> bool:
    """Move a `with` block that only assigns (FSDP1's `state_dict_type`)."""
    block = place.statement
    assert isinstance(block, cst.With)
    inside = block.body.body
    only_assigns = all(
        isinstance(line, cst.SimpleStatementLine)
        and all(isinstance(small, cst.Assign) for small in line.body)
        for line in inside
    )
    if (
        not only_assigns
        or layout.string_lines(source, block)
        or not may_overtake(source, block, place)
    ):
        return False
    start, end = source.span(block)
    lines = statement_lines(source, block, source.text[start:end].rstrip())
    rewrite.insert_before(source, place.test, place.lines(lines))
    rewrite.delete_statement(source, block)
    return True


def hoist(
    rewrite: Rewrite,
    source: Source,
    node: cst.CSTNode,
    text: str,
    place: GuardedStatement,
    name: str,
) -> bool:
    """Evaluate an expression before the test, and use its value in the expression's place.

    Args:
        rewrite: receives the changes.
        source: the file.
        node: the expression.
        text: the text to write for the expression.
        place: the statement that holds the expression.
        name: the name of the value, if it needs one.

    Returns:
        Whether the expression could be moved.
    """
    if not may_overtake(source, node, place) or "\n" in text:
        return False
    if any(
        isinstance(parent, cst.BaseComp)
        for parent in ancestors_below(source, node, place.statement)
    ):
        return False
    statement = layout.statement_of(source, node)
    if (
        isinstance(statement, cst.Assign)
        and statement.value is node
        and _assigns_one_name(statement)
    ):
        target = source.code(statement.targets[0].target)
        if not any(mentions(other, {target}) for other in place.before):
            rewrite.insert_before(source, place.test, place.lines([f"{target} = {text}"]))
            rewrite.delete_statement(source, statement)
            return True
    name = free_name(source, node, name)
    rewrite.insert_before(source, place.test, place.lines([f"{name} = {text}"]))
    rewrite.replace(source, node, name)
    return True


def _assigns_one_name(assign: cst.Assign) -> bool:
    return len(assign.targets) == 1 and isinstance(assign.targets[0].target, cst.Name)


def suggest_name(call: cst.Call) -> str:
    """A name for the result of a collective."""
    function = call.func
    last = function.attr if isinstance(function, cst.Attribute) else function
    text = last.value if isinstance(last, cst.Name) else ""
    if text in {"state_dict", "get_model_state_dict"}:
        return "model_state"
    if text in {"get_optimizer_state_dict", "optim_state_dict", "full_optim_state_dict"}:
        return "optimizer_state"
    if text == "full_tensor":
        return "full"
    return "result"

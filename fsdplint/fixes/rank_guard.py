"""Statements under a test of the rank: putting one there, and moving one out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.rank_invariance import is_rank_invariant
from fsdplint.fixes.syntax import (
    Function,
    ancestors,
    call_at,
    free_name,
    is_within,
    library_name,
    names,
    substitute,
)
from fsdplint.interpreter import Program
from fsdplint.interpreter.torch_values import RankTest, RankValue
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax import layout
from fsdplint.syntax.dotted import bound_by, leaves, mentions
from fsdplint.trace import Guard, Site

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
# What a statement is not moved out of.
APART = (
    *(cst.FunctionDef, cst.Lambda, cst.ClassDef, cst.For, cst.While, cst.If, cst.Try, cst.TryStar),
    cst.Match,
)
# Calls that may stay behind when a collective is moved to before them.
HARMLESS = {"print", "makedirs", "mkdir", "info", "debug", "warning", "log", "save", "save_file"}


def rank0_test(rewrite: Rewrite, source: Source, at: cst.CSTNode) -> str:
    """The text of `dist.get_rank() == 0` in this file."""
    return f"{library_name(rewrite, source, 'torch.distributed.get_rank', at)}() == 0"


def on_rank0(
    rewrite: Rewrite,
    source: Source,
    node: cst.CSTNode,
    texts: dict[cst.CSTNode, str] | None = None,
) -> bool:
    """Put the statement that holds a node under a test for rank 0.

    A file that is opened for it (`with open(path, "wb") as f: torch.save(state, f)`) is opened
    under the test too.

    texts: other texts for some nodes in the statement.
    Returns whether it could be done: not for a statement whose value is used further.
    """
    statement = guardable(source, node)
    if statement is None:
        return False
    if layout.string_lines(source, statement):
        return False
    lines = statement_lines(source, statement, substitute(source, statement, texts or {}))
    test = rank0_test(rewrite, source, node)
    rewrite.replace_statement(source, statement, [f"if {test}:", *("\t" + x for x in lines)])
    return True


def guardable(source: Source, node: cst.CSTNode) -> cst.CSTNode | None:
    """The statement that `on_rank0` would put under the test, if there is one."""
    statement = layout.statement_of(source, node)
    for parent in ancestors(source, node):
        if isinstance(parent, cst.With) and _opens(parent):
            statement = parent
        elif isinstance(parent, Function | cst.For | cst.While):
            break
    return statement if isinstance(statement, cst.Expr | cst.With) else None


def _opens(block: cst.With) -> bool:
    return any(
        isinstance(item.item, cst.Call)
        and isinstance(item.item.func, cst.Name | cst.Attribute)
        and (item.item.func.value if isinstance(item.item.func, cst.Name)
             else item.item.func.attr.value) == "open"
        for item in block.items
    )  # fmt: skip


def statement_lines(source: Source, statement: cst.CSTNode, text: str) -> list[str]:
    """The lines of a statement's text without the indentation that they have in common."""
    indent = layout.line_indent(source, source.span(statement)[0])
    first, *others = layout.NEWLINE.split(text)
    return [first, *(line.removeprefix(indent) for line in others)]


# Out of a test ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a node stands with regard to a test of the rank.

    Attributes:
        test: the `if` statement.
        statement: the statement that holds the node: in the body of the test, or behind the test
            where this leaves the function (`if rank != 0: return`).
        before: the statements between the test and this one, which a moved one would overtake.
        kept: what else the test asks, alike on all ranks, which has to go with what moves.
    """

    test: cst.If
    statement: Statement
    before: tuple[cst.CSTNode, ...]
    behind: tuple[cst.CSTNode, ...]
    kept: str = ""

    def lines(self, moved: list[str]) -> list[str]:
        """Lines to put before the test, under what else it asks."""
        return [f"if {self.kept}:", *("\t" + line for line in moved)] if self.kept else moved


def place_of(
    source: Source, node: cst.CSTNode, guard: Guard, program: Program | None = None
) -> Place | None:
    """How the node stands under the guard, where it stands there directly; else None.

    Directly: the test has no other branch, nothing in it but the rank keeps all ranks from the
        node,
    and no loop, function or other condition is between the two. Given the program, what else the
    test asks may keep them back too, if that is alike on all ranks.
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
                kept = _rest_of_test(source, owner.test, True, program)
                if not isinstance(statement, Statement) or kept is None:
                    return None
                before, behind = tuple(body[:number]), tuple(body[number + 1 :])
                return Place(owner, statement, before, behind, kept)
            for earlier, other in enumerate(body[:number]):
                if isinstance(other, cst.If) and _is_test(source, other, guard):
                    if other.orelse is not None or not isinstance(statement, Statement):
                        return None
                    kept = _rest_of_test(source, other.test, False, program)
                    if not leaves(other.body.body[-1]) or kept is None:
                        return None
                    between = tuple(body[earlier + 1 : number])
                    return Place(other, statement, between, tuple(body[number + 1 :]), kept)
        if isinstance(parent, APART):
            return None
        if isinstance(parent, Statement):
            statement = parent
    return None


def _by_rank_alone(test: cst.BaseExpression, holds: bool) -> bool:
    """Whether a test of the rank lets at least one rank through whatever else it asks.

    `step % 100 == 0 and rank == 0` does not; `world_size == 1 or rank == 0` does.
    """
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _by_rank_alone(test.expression, not holds)
    if isinstance(test, cst.BooleanOperation):
        either = isinstance(test.operator, cst.Or) == holds
        return either and all(_by_rank_alone(part, holds) for part in (test.left, test.right))
    return True


def _rest_of_test(
    source: Source, test: cst.BaseExpression, holds: bool, program: Program | None
) -> str | None:
    """What else a test of the rank asks: a condition, "" for nothing; None where that is not
    certain.

    holds: whether it holds or fails where the node is reached.
    """
    if _by_rank_alone(test, holds):
        return ""
    parts = _conjunction(test, holds) if program is not None else None
    if parts is None or program is None:
        return None
    others = [part for part in parts if not _asks_rank(program, part[0])]
    if len(parts) - len(others) != 1 or not all(
        is_rank_invariant(source, part) for part, _ in others
    ):
        return None
    text = " and ".join(_condition_text(source, *part) for part in others)
    return text if "\n" not in text else None


def _conjunction(
    test: cst.BaseExpression, holds: bool
) -> list[tuple[cst.BaseExpression, bool]] | None:
    """The conditions that must all hold, or fail, for a test to hold, or fail."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _conjunction(test.expression, not holds)
    if not isinstance(test, cst.BooleanOperation):
        return [(test, holds)]
    if isinstance(test.operator, cst.And) != holds:
        return None
    left, right = _conjunction(test.left, holds), _conjunction(test.right, holds)
    return [*left, *right] if left is not None and right is not None else None


def _asks_rank(program: Program, node: cst.BaseExpression) -> bool:
    values = program.values(node)
    return bool(values) and all(isinstance(value, RankTest | RankValue) for value in values)


# What is written instead of an operator for the opposite.
OPPOSITE = {cst.Equal: "!=", cst.NotEqual: "==", cst.Is: "is not", cst.IsNot: "is"}


def _condition_text(source: Source, node: cst.BaseExpression, holds: bool) -> str:
    """The text of a condition, or of its opposite."""
    text = source.code(node)  # without parentheses around it
    if holds:
        return f"({text})" if isinstance(node, cst.IfExp) else text
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        target = node.comparisons[0]
        operator = OPPOSITE.get(type(target.operator))
        if operator is not None:
            return f"{source.code(node.left)} {operator} {source.code(target.comparator)}"
    if isinstance(node, cst.Name | cst.Attribute | cst.Call):
        return f"not {text}"
    return f"not ({text})"


def _is_test(source: Source, statement: cst.If, guard: Guard) -> bool:
    """Whether this `if` asks just what the guard asks."""
    assert isinstance(guard.site, NodeSite)
    node = guard.site.node
    return node is statement or node is statement.test


def _is_elif(source: Source, statement: cst.If) -> bool:
    parent = source.parent(statement)
    return isinstance(parent, cst.If) and parent.orelse is statement


def may_overtake(source: Source, node: cst.CSTNode, place: Place) -> bool:
    """Whether what stands between the test and a node may as well come after the node.

    That is so for prints, for folders that are made, and for assignments of what the node does not
    use; what is between must not use what the node's statement assigns either.
    """
    needed = names(node)
    inside = list(_before_inside(source, node, place.statement))
    if needed & bound_by(place.test.test) or not liftable(source, node, place.statement):
        return False
    for other in (*place.before, *inside):
        if isinstance(other, cst.BaseCompoundStatement):
            return False
        smalls = other.body if isinstance(other, cst.SimpleStatementLine) else [other]
        if not all(_overtakable(small, needed) for small in smalls):
            return False
    return not any(mentions(other, bound_by(place.statement)) for other in place.before)


def _before_inside(
    source: Source, node: cst.CSTNode, statement: cst.CSTNode
) -> Iterator[cst.CSTNode]:
    """What stands before a node in the same statement: in a `with`, or on the same line."""
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
    """Whether a node may as well be evaluated before its statement.

    Not where it may not be evaluated at all, or uses what is only known where it stands: the
    variable of a comprehension, or what a `with` binds.
    """
    if node is statement:
        return True
    needed = names(node)
    for outer in (*_up_to(source, node, statement), statement):
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


def _overtakable(small: cst.CSTNode, needed: set[str]) -> bool:
    if isinstance(small, cst.Assign | cst.AnnAssign):
        bound = bound_by(small)
        return not any(name.split(".")[0] in needed for name in bound)
    if isinstance(small, cst.Expr):
        value = small.value
        if isinstance(value, cst.SimpleString):
            return True
        if not isinstance(value, cst.Call):
            return False
        function = value.func
        last = function.attr if isinstance(function, cst.Attribute) else function
        return isinstance(last, cst.Name) and last.value in HARMLESS
    return False


def move_out(rewrite: Rewrite, site: Site, guard: Guard, program: Program | None = None) -> bool:
    """Move a collective call to before the test of the rank that it stands under.

    Its statement moves where that does nothing but assign the call's result; otherwise the result
    gets a name of its own. A statement of its own that ends the body (a barrier) moves behind the
    test. Returns whether it could be done.
    """
    found = call_at(site)
    if found is None:
        return False
    source, call = found
    place = place_of(source, call, guard, program)
    if place is None:
        return False
    statement = layout.statement_of(source, call)
    if isinstance(statement, cst.Expr) and statement.value is call:
        if isinstance(place.statement, cst.With):
            return False  # what it stands in may be needed
        return _move_alone(rewrite, source, statement, place)
    if isinstance(place.statement, cst.With):
        return _move_with(rewrite, source, place)
    return take_out(rewrite, source, call, source.code(call), place, suggest_name(call))


def _move_alone(rewrite: Rewrite, source: Source, statement: cst.Expr, place: Place) -> bool:
    if layout.string_lines(source, statement):
        return False
    lines = statement_lines(source, statement, source.code(statement))
    in_body = is_within(source, place.statement, place.test)
    if in_body and not place.behind and place.before:
        if place.kept:
            return False  # the body may change what it asks
        rewrite.insert_after(source, place.test, lines)
    elif may_overtake(source, statement, place):
        rewrite.insert_before(source, place.test, place.lines(lines))
    else:
        return False
    rewrite.delete_statement(source, statement)
    return True


def _move_with(rewrite: Rewrite, source: Source, place: Place) -> bool:
    """Move a `with` block that does nothing but assign (FSDP1's `state_dict_type`)."""
    block = place.statement
    assert isinstance(block, cst.With)
    inside = block.body.body
    plain = all(
        isinstance(line, cst.SimpleStatementLine)
        and all(isinstance(small, cst.Assign) for small in line.body)
        for line in inside
    )
    if not plain or layout.string_lines(source, block) or not may_overtake(source, block, place):
        return False
    start, end = source.span(block)
    lines = statement_lines(source, block, source.text[start:end].rstrip())
    rewrite.insert_before(source, place.test, place.lines(lines))
    rewrite.delete_statement(source, block)
    return True


def take_out(
    rewrite: Rewrite, source: Source, node: cst.CSTNode, text: str, place: Place, name: str
) -> bool:
    """Evaluate an expression before the test instead of under it; its value is used where it stood.

    text: what to write for the expression. name: what to call its value, if it needs a name.
    """
    if not may_overtake(source, node, place) or "\n" in text:
        return False
    if any(isinstance(parent, cst.BaseComp) for parent in _up_to(source, node, place.statement)):
        return False
    statement = layout.statement_of(source, node)
    if isinstance(statement, cst.Assign) and statement.value is node and _plain(statement):
        target = source.code(statement.targets[0].target)
        if not any(mentions(other, {target}) for other in place.before):
            rewrite.insert_before(source, place.test, place.lines([f"{target} = {text}"]))
            rewrite.delete_statement(source, statement)
            return True
    name = free_name(source, node, name)
    rewrite.insert_before(source, place.test, place.lines([f"{name} = {text}"]))
    rewrite.replace(source, node, name)
    return True


def _plain(assign: cst.Assign) -> bool:
    return len(assign.targets) == 1 and isinstance(assign.targets[0].target, cst.Name)


def _up_to(source: Source, node: cst.CSTNode, outer: cst.CSTNode) -> list[cst.CSTNode]:
    result = []
    for parent in ancestors(source, node):
        if parent is outer:
            break
        result.append(parent)
    return result


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

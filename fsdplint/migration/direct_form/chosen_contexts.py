"""Contexts of states that the arms of an `if` or the sides of an expression choose, for one block.

    if wrapped:
        context = FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)
    else:
        context = nullcontext()
    with context:
        state = model.state_dict()

Each arm gets the block, in its own context. An expression, or an `if` without `else` that replaces the
first context, becomes such an `if`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.analysis.variables import Definition, definitions, home_of, reads
from fsdplint.migration.direct_form.arms import (
    MAX_LINES,
    Variable,
    changes_after,
    changes_between,
    choice_before,
    first_line,
    going_on,
    text_with,
)
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.names import FSDP
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend, string_lines

_QUESTIONS = ("isinstance", "hasattr", "bool")


@dataclass(frozen=True)
class _Choice:
    """A test between two contexts.

    Attributes:
        places: where the test and the contexts are evaluated, if not in the block's head.
        dropped: the statements that go, because only the block reads what they assign.
    """

    test: cst.BaseExpression
    contexts: tuple[cst.BaseExpression, cst.BaseExpression]
    places: tuple[cst.CSTNode, ...] = ()
    dropped: Sequence[cst.CSTNode] = ()


def rewrite_with(inlining: Inlining, node: cst.With) -> bool:
    """Write a block for each context that it may run in; whether there are several."""
    source = inlining.source
    if inlining.changed or node.asynchronous is not None or len(node.items) != 1:
        return False
    item, block = node.items[0], source.parent(node)
    if item.asname is not None or not isinstance(node.body, cst.IndentedBlock):
        return False
    if not isinstance(block, cst.IndentedBlock | cst.Module):
        return False
    if isinstance(item.item, cst.IfExp):
        return _write_choice(inlining, node, _of_expression(item.item))
    if not isinstance(item.item, cst.Name):
        return False
    known = definitions(source, item.item)
    home = home_of(source, item.item) or source.tree
    if not known or reads(source, home, item.item.value) != [item.item]:
        return False
    if len(known) == 1 and isinstance(known[0].value, cst.IfExp):
        return _write_choice(inlining, node, _of_expression(known[0].value, known[0].statement))
    variable = Variable(item.item, known)
    before = block.body[: list(block.body).index(node)]
    return _write_arms(inlining, node, variable, before) or _write_choice(
        inlining, node, _of_one_arm(inlining, variable, before)
    )


# Reading ------------------------------------------------------------------------------------------


def _of_expression(value: cst.IfExp, assigned: cst.CSTNode | None = None) -> _Choice:
    dropped = [assigned] if assigned is not None else []
    places = (assigned,) * 3 if assigned is not None else ()
    return _Choice(value.test, (value.body, value.orelse), places, dropped)


def _of_one_arm(
    inlining: Inlining, variable: Variable, before: Sequence[cst.CSTNode]
) -> _Choice | None:
    """The choice of an `if` without `else` that replaces the context before it."""
    source = inlining.source
    if len(variable.definitions) != 2:
        return None
    first, second = sorted(variable.definitions, key=lambda one: source.span(one.statement))
    line = source.parent(second.statement)
    arm = source.parent(line) if line is not None else None
    one = source.parent(arm) if isinstance(arm, cst.IndentedBlock) else None
    if not isinstance(one, cst.If) or one.orelse is not None or one not in before:
        return None
    if source.parent(first.statement) not in before[: list(before).index(one)]:
        return None
    alone = len(one.body.body) == 1
    if not list(going_on(one)) or (alone and inlining.has_comments(one)):
        return None
    dropped = [first.statement, one if alone else second.statement]
    places = one.test, second.statement, first.statement
    return _Choice(one.test, (second.value, first.value), places, dropped)


def _are_contexts(inlining: Inlining, values: Sequence[cst.BaseExpression]) -> bool:
    """Whether values are contexts of states or empty ones, and not only empty ones."""
    empty = [_is_empty(inlining, value) for value in values]
    return not all(empty) and all(
        none or _is_type(inlining, value) for none, value in zip(empty, values, strict=True)
    )


def _is_type(inlining: Inlining, value: cst.BaseExpression) -> bool:
    return (
        isinstance(value, cst.Call)
        and inlining.migration.fsdp1(value.func) == f"{FSDP}.state_dict_type"
        and not inlining.has_comments(value)
    )


def _is_empty(inlining: Inlining, value: cst.BaseExpression) -> bool:
    return (
        isinstance(value, cst.Call)
        and not value.args
        and inlining.migration.symbol(value.func) == "contextlib.nullcontext"
    )


def _is_plain(value: cst.BaseExpression) -> bool:
    """Whether an expression binds no name and awaits nothing."""
    return not any(isinstance(part, cst.NamedExpr | cst.Await) for part in (value, *descend(value)))


def _stays(inlining: Inlining, node: cst.With, choice: _Choice) -> bool:
    """Whether the test and the contexts give the same at the block as where they are evaluated."""
    source, values = inlining.source, (choice.test, *choice.contexts)
    return all(map(_is_plain, values)) and not any(
        function_around(source, place) is not function_around(source, node)
        or changes_after(inlining, place, value, node)
        for place, value in zip(choice.places, values, strict=False)
    )


def _stays_in_arm(
    inlining: Inlining, node: cst.With, choice: cst.If, definition: Definition
) -> bool:
    """Whether the context that an arm assigns is the same at the block."""
    source, value, line = inlining.source, definition.value, definition.statement
    arm = next(one for one in going_on(choice) if line in descend(one))
    within = source.span(line)[1], source.span(arm)[1]
    return (
        _is_plain(value)
        and not changes_between(inlining, value, *within, node)
        and not changes_after(inlining, choice, value, node)
    )


def _is_question(test: cst.BaseExpression) -> bool:
    """Whether a test calls nothing but functions that only look at their arguments."""
    return all(
        any(is_constant(part.func, name) for name in _QUESTIONS)
        for part in (test, *descend(test))
        if isinstance(part, cst.Call)
    )


# Writing ------------------------------------------------------------------------------------------


def _write_arms(
    inlining: Inlining, node: cst.With, variable: Variable, before: Sequence[cst.CSTNode]
) -> bool:
    """Put the block into the arms of the `if` before it that choose its context."""
    source = inlining.source
    choice = choice_before(inlining, before, [variable])
    values = [one.value for one in variable.definitions]
    if choice is None or not _are_contexts(inlining, values):
        return False
    if not all(_stays_in_arm(inlining, node, choice, one) for one in variable.definitions):
        return False
    moved = [*before[list(before).index(choice) + 1 :], node]
    texts: dict[cst.IndentedBlock, str] = {}
    for arm in going_on(choice):
        definition = variable.of(inlining, arm)
        text = _text(inlining, node, definition.value, moved) if definition is not None else None
        if text is None:
            return False
        texts[arm] = text
    for arm, text in texts.items():
        inlining.put_after(arm.body[-1], text.split("\n"))
    inlining.cut_lines(first_line(source, moved[0]), source.span(node)[1])
    for one in variable.definitions:
        inlining.delete(one.statement)
    return True


def _write_choice(inlining: Inlining, node: cst.With, choice: _Choice | None) -> bool:
    """Write an `if` with the block in both arms."""
    source = inlining.source
    if choice is None or not _are_contexts(inlining, choice.contexts):
        return False
    test = source.code(choice.test)
    if "\n" in test or not _is_question(choice.test):
        return False
    if not _stays(inlining, node, choice):
        return False
    texts = [_text(inlining, node, value, [node], "") for value in choice.contexts]
    unit = source.tree.default_indent
    first, second = (textwrap.indent(text, unit) if text else "" for text in texts)
    if not first or not second:
        return False
    inlining.put_lines(node, [f"if {test}:", *first.split("\n"), "else:", *second.split("\n")])
    for statement in choice.dropped:
        inlining.delete(statement)
    return True


def _text(
    inlining: Inlining,
    node: cst.With,
    context: cst.BaseExpression,
    moved: Sequence[cst.CSTNode],
    comments: str = "above",
) -> str | None:
    """The lines of statements, the last of which is the block, in a context."""
    source, text = inlining.source, inlining.source.text
    if not _is_empty(inlining, context):
        return text_with(inlining, {node.items[0].item: context}, moved, comments)
    if any(string_lines(source, one) for one in moved):
        return None
    head = text.rfind("\n", 0, source.span(node)[0]) + 1
    begin = first_line(source, moved[0]) if comments else head
    body = text[first_line(source, node.body.body[0]) : source.span(node.body.body[-1])[1]]
    found = textwrap.dedent(text[begin:head]) + textwrap.dedent(body)
    return found if found.count("\n") < MAX_LINES else None

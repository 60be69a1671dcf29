"""A block behind an `if` that is written once for each arm, and the variables that the arms assign."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.values import Bound, Class, Function
from fsdplint.migration.analysis.unreached_code import bindings
from fsdplint.migration.analysis.variables import Definition, home_of, reads
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend, string_lines

MAX_LINES = 20  # that each arm gets
_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)
Values = Mapping[cst.BaseExpression, cst.BaseExpression]


@dataclass(frozen=True)
class Variable:
    """A name in the head of the block, and what each arm assigns to it."""

    name: cst.Name
    definitions: Sequence[Definition]

    def of(self, inlining: Inlining, arm: cst.BaseSuite) -> Definition | None:
        """The definition in an arm, as a statement of its block."""
        source = inlining.source
        found = [
            one
            for one in self.definitions
            if (line := source.parent(one.statement)) is not None and source.parent(line) is arm
        ]
        return found[0] if len(found) == 1 else None


def choice_before(
    inlining: Inlining, before: Sequence[cst.CSTNode], chosen: Sequence[Variable]
) -> cst.If | None:
    """The `if` before the block each of whose arms assigns a variable or leaves."""
    for one in reversed(before):
        if not isinstance(one, cst.If) or len(chosen) != 1 or None in arms_of(one):
            continue
        reached = list(going_on(one))
        assigned = [chosen[0].of(inlining, arm) for arm in reached]
        known = all(isinstance(arm.body[-1], cst.SimpleStatementLine) for arm in reached)
        if None not in assigned and len(assigned) == len(chosen[0].definitions) > 1 and known:
            return one
    return None


def changes_after(
    inlining: Inlining, statement: cst.CSTNode, value: cst.BaseExpression, node: cst.With
) -> bool:
    """Whether an expression may give something else at the block than behind a statement."""
    source = inlining.source
    start, end = source.span(statement)[1], source.span(node)[0]
    return start > end or changes_between(inlining, value, start, end, node)


def changes_between(
    inlining: Inlining, value: cst.BaseExpression, start: int, end: int, node: cst.With
) -> bool:
    """Whether code between two places in the function of the block binds a name or attribute of an
    expression, or calls what may change an object in it."""
    source, function = inlining.source, function_around(inlining.source, node)
    parts = [value, *descend(value)]
    names = {part.value for part in parts if isinstance(part, cst.Name)}
    for target, found in bindings(source, function).items():
        last = target.partition("[")[0].rpartition(".")[2]
        if last in names and any(start <= source.span(one)[0] < end for one in found):
            return True
    in_objects = any(isinstance(part, cst.Attribute | cst.Subscript) for part in parts)
    return any(
        _may_change(inlining, part, names, in_objects)
        for part in source.descend(function)
        if isinstance(part, cst.Call) and start <= source.span(part)[0] < end
    )


def _may_change(inlining: Inlining, call: cst.Call, names: set[str], in_objects: bool) -> bool:
    """Whether a call may change an object by its method, or by code of the program."""
    if inlining.migration.fsdp1(call.func):
        return False
    if isinstance(call.func, cst.Attribute):
        if names & {one.value for one in descend(call.func.value) if isinstance(one, cst.Name)}:
            return True
        if isinstance(call.func.value, cst.Name) and call.func.value.value in names:
            return True
    if not in_objects:
        return False
    called = inlining.migration.values(call.func)
    return any(isinstance(one, Function | Bound | Class) for one in called)


def arms_of(node: cst.If) -> Iterator[cst.IndentedBlock | None]:
    """The blocks of the arms; None for one without a block, or if there is no `else`."""
    arm: cst.If | cst.Else | None = node
    while arm is not None:
        yield arm.body if isinstance(arm.body, cst.IndentedBlock) else None
        if isinstance(arm, cst.Else):
            return
        arm = arm.orelse
    yield None


def going_on(node: cst.If) -> Iterator[cst.IndentedBlock]:
    """The arms that reach what is behind the `if`."""
    for arm in arms_of(node):
        last = arm.body[-1] if arm is not None and arm.body else None
        if isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], _LEAVES):
            continue
        if arm is not None:
            yield arm


def text_with(
    inlining: Inlining,
    values: Values,
    moved: Sequence[cst.CSTNode],
    comments: str = "above",
) -> str | None:
    """The lines of statements, with values in the place of some arguments.

    comments: which comments are taken along.
    """
    source, text = inlining.source, inlining.source.text
    if any(string_lines(source, one) for one in moved):
        return None
    begin, end = source.span(moved[0])[0], source.span(moved[-1])[1]
    parts, at = [], begin
    for node in sorted(values, key=source.span):
        start, stop = source.span(node)
        parts += [text[at:start], source.code(values[node])]
        at = stop
    lines = "".join([*parts, text[at:end]])
    start = first_line(source, moved[0]) if comments else text.rfind("\n", 0, begin) + 1
    found = textwrap.dedent(text[start:begin] + lines)
    return found if found.count("\n") < MAX_LINES else None


def first_line(source: Source, node: cst.CSTNode) -> int:
    """Where the line of a statement begins, or the first one of the comments above it."""
    text = source.text
    start = text.rfind("\n", 0, source.span(node)[0]) + 1
    while start:
        above = text.rfind("\n", 0, start - 1) + 1
        if not text[above:start].lstrip().startswith("#"):
            break
        start = above
    return start


def delete_unread(inlining: Inlining, variable: Variable) -> None:
    """Delete the assignments of a variable that only the head of the block reads."""
    source = inlining.source
    home = home_of(source, variable.name) or source.tree
    if reads(source, home, variable.name.value) == [variable.name]:
        for one in variable.definitions:
            inlining.delete(one.statement)

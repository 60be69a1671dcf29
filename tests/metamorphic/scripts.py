"""The part of a script that is executed: as the body of a function `main` that the script calls."""

from __future__ import annotations

import symtable
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m
from syntax_tools import (
    Statement,
    bound,
    function,
    has_own,
    head_length,
    is_docstring,
    is_import,
    nested_scopes,
    read,
    scope,
    statements,
)


@dataclass(frozen=True)
class Script:
    """A script as three parts.

    Attributes:
        module: the file.
        top: its imports, definitions and constants.
        body: what it executes, as the body of a function.
        call: the statements that call the function.
        name: the function.
    """

    module: cst.Module
    top: Sequence[Statement]
    body: Sequence[Statement]
    call: Sequence[Statement]
    name: str = "main"

    def with_body(self, body: Sequence[Statement], above: str = "") -> cst.Module:
        """The script with another body, and further definitions above it."""
        added = self.above(above)
        return self.module.with_changes(
            body=[*self.top, *added, function(self.name, body), *self.call], footer=[]
        )

    def above(self, text: str) -> list[Statement]:
        return statements(text) if text else []

    def with_entry(self, definitions: Sequence[Statement], call: str) -> cst.Module:
        """The script with other definitions in the place of the function, and another call."""
        calls = [s.visit(_Call(self.name, call)) for s in self.call]
        return self.module.with_changes(body=[*self.top, *definitions, *calls], footer=[])


class _Call(cst.CSTTransformer):
    def __init__(self, name: str, call: str) -> None:
        self.name, self.call = name, call

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if m.matches(updated_node, m.Call(func=m.Name(self.name), args=[])):
            return cst.parse_expression(self.call)
        return updated_node


_LITERAL = (
    m.SimpleString() | m.Integer() | m.Float() | m.Name("True") | m.Name("False") | m.Name("None")
)
_CONSTANT = m.SimpleStatementLine([m.Assign(targets=[m.AssignTarget(m.Name())], value=_LITERAL)])


def script_of(module: cst.Module) -> Script | None:
    """The script in a file; None where it executes nothing, or could not be taken apart."""
    top: list[Statement] = []
    body: list[Statement] = []
    for index, statement in enumerate(module.body):
        is_top = (
            index < head_length(module)
            or is_import(statement)
            or is_docstring(statement)
            or isinstance(statement, (cst.FunctionDef, cst.ClassDef))
            or m.matches(statement, _CONSTANT)
        )
        (top if is_top else body).append(statement)
    if not body:
        return None
    return _of_function(module, top, body) or _of_statements(module, top, body)


def _of_function(module: cst.Module, top: list[Statement], body: list[Statement]) -> Script | None:
    """A script that calls one of its functions without arguments, and does nothing else."""
    call = m.SimpleStatementLine([m.Expr(m.Call(func=m.Name(), args=[]))])
    last = body[-1]
    if len(body) > 1 or module.body[-1] is not last:
        return None
    inner = last.body.body if isinstance(last, cst.If) and last.orelse is None else [last]
    if len(inner) != 1 or not m.matches(inner[0], call):
        return None
    name = inner[0].body[0].value.func.value  # type: ignore[attr-defined,union-attr]
    for index, statement in enumerate(top):
        if isinstance(statement, cst.FunctionDef) and statement.name.value == name:
            parameters = statement.params
            rest = [*top[:index], *top[index + 1 :]]
            unusual = parameters.params or parameters.kwonly_params or parameters.star_kwarg
            if unusual or statement.decorators or has_own(statement.body.body, cst.Yield):  # type: ignore[arg-type]
                return None
            if name in read(rest) or not isinstance(statement.body, cst.IndentedBlock):
                return None
            return Script(module, rest, list(statement.body.body), [last], name)  # type: ignore[arg-type]
    return None


def _of_statements(
    module: cst.Module, top: list[Statement], body: list[Statement]
) -> Script | None:
    """A script with statements at the top level. What functions read of theirs becomes `global`."""
    source = module.code
    if any(word in source for word in ("globals()", "locals()", "import *", "__name__")):
        return None
    definitions = [s for s in top if isinstance(s, (cst.FunctionDef, cst.ClassDef))]
    names = bound(body)
    if {"main", *bound(definitions)} & {*names} or "main" in bound(top):
        return None
    shared = sorted(_global_names(definitions) & set(names))
    if any(_early_names(one) & set(names) for one in definitions):
        return None
    first = statements(f"global {', '.join(shared)}\n") if shared else []
    return Script(module, top, [*first, *body], statements("\n\nmain()\n"))


def _global_names(definitions: Sequence[Statement]) -> set[str]:
    """The names that functions and methods read of the module."""
    table = symtable.symtable(cst.Module(list(definitions)).code, "definitions", "exec")
    symbols = (symbol for inner in nested_scopes(table) for symbol in inner.get_symbols())
    return {symbol.get_name() for symbol in symbols if symbol.is_global()}


def _early_names(definition: cst.FunctionDef | cst.ClassDef) -> set[str]:
    """The names that are read when a definition is executed."""
    if isinstance(definition, cst.FunctionDef):
        return read([definition.with_changes(body=cst.IndentedBlock(statements("pass\n")))])
    methods = [s for s in definition.body.body if isinstance(s, cst.FunctionDef)]
    rest = [s for s in definition.body.body if not isinstance(s, cst.FunctionDef)]
    early = read([definition.with_changes(body=cst.IndentedBlock([*rest, *statements("pass\n")]))])
    return early.union(*(_early_names(method) for method in methods))


@dataclass(frozen=True)
class Halves:
    """The body of a script in two parts: up to its first loop, and the rest."""

    first: Sequence[Statement]
    second: Sequence[Statement]
    handed: Sequence[str]  # names that the first binds and the second reads


def halves_of(script: Script) -> Halves | None:
    body = list(script.body)
    if has_own(body, cst.Global, cst.Nonlocal):
        return None
    compound = (cst.For, cst.While, cst.With, cst.Try)
    places = [i for i, s in enumerate(body) if isinstance(s, compound) and i]
    place = places[0] if places else len(body) // 2
    first, second = body[:place], body[place:]
    if not first or not second or has_own(first, cst.Return):
        return None
    inner = scope(second)
    again = {s.get_name() for s in inner.get_symbols() if s.is_assigned()}
    handed = [name for name in bound(first) if name in read(second) or name in again]
    deleted = any(isinstance(s, cst.SimpleStatementLine) and m.findall(s, m.Del()) for s in first)
    return None if deleted or not handed else Halves(first, second, handed)


def of_main(
    change: Callable[[Script], cst.Module | None],
) -> Callable[[cst.Module], cst.Module | None]:
    """A change of a script as one of its file."""

    def whole(module: cst.Module) -> cst.Module | None:
        script = script_of(module)
        return None if script is None else change(script)

    whole.__name__, whole.__doc__, whole.__module__ = (
        change.__name__,
        change.__doc__,
        change.__module__,
    )
    return whole

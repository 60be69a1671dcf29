"""Small tools of the refactorings: statements from text, imports, names and scopes."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable, Sequence

import libcst as cst
import libcst.matchers as m

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement


def statements(text: str) -> list[Statement]:
    return list(cst.parse_module(text).body)


def expression(text: str) -> cst.BaseExpression:
    return cst.parse_expression(text)


def text_of(nodes: Iterable[cst.CSTNode]) -> str:
    return "".join(cst.Module([]).code_for_node(node) for node in nodes)


def block(body: Sequence[Statement]) -> cst.IndentedBlock:
    return cst.IndentedBlock(list(body) or statements("pass\n"))


def is_import(statement: cst.CSTNode) -> bool:
    return m.matches(statement, m.SimpleStatementLine([m.Import() | m.ImportFrom()]))


def is_docstring(statement: cst.CSTNode) -> bool:
    strings = m.SimpleString() | m.ConcatenatedString()
    return m.matches(statement, m.SimpleStatementLine([m.Expr(strings)]))


def head_length(module: cst.Module) -> int:
    """How many statements must come first: the docstring and imports from `__future__`."""
    future = m.SimpleStatementLine([m.ImportFrom(module=m.Name("__future__"))])
    length = 0
    while length < len(module.body) and (
        is_docstring(module.body[length]) or m.matches(module.body[length], future)
    ):
        length += 1
    return length


def with_head(module: cst.Module, text: str) -> cst.Module:
    """The module with further statements (imports, helpers) at its top."""
    length = head_length(module)
    return module.with_changes(
        body=[*module.body[:length], *statements(text), *module.body[length:]]
    )


def after_imports(module: cst.Module, text: str) -> cst.Module:
    """The module with further statements after its last import at the top level."""
    last = max(
        (i for i, s in enumerate(module.body) if is_import(s)), default=head_length(module) - 1
    )
    return module.with_changes(
        body=[*module.body[: last + 1], *statements(text), *module.body[last + 1 :]]
    )


def scope(body: Sequence[Statement]) -> symtable.SymbolTable:
    """The names of statements as the body of a function."""
    lines = cst.Module([function("scope", body)]).code
    return symtable.symtable(lines, "scope", "exec").get_children()[0]


def nested_scopes(table: symtable.SymbolTable) -> Iterable[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from nested_scopes(child)


def bound(body: Sequence[Statement]) -> list[str]:
    """The names that statements bind in their own scope, in order."""
    table = scope(body)
    names = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    names |= {s.get_name() for s in table.get_symbols() if s.is_namespace()}
    found = [
        n.id for n in ast.walk(ast.parse(cst.Module(list(body)).code)) if isinstance(n, ast.Name)
    ]
    order = {name: index for index, name in reversed(list(enumerate(found)))}
    return sorted(names, key=lambda name: (order.get(name, 0), name))


def read(nodes: Iterable[cst.CSTNode]) -> set[str]:
    """The names that statements read anywhere, and those of other scopes that they assign."""
    found = set()
    for node in ast.walk(ast.parse(text_of(nodes))):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            found.update(node.names)
    return found


def function(
    name: str, body: Sequence[Statement], parameters: str = "", decorator: str = ""
) -> cst.FunctionDef:
    above = f"@{decorator}\n" if decorator else ""
    made = statements(f"\n\n{above}def {name}({parameters}):\n    pass\n")[0]
    assert isinstance(made, cst.FunctionDef)
    return made.with_changes(body=block(body))


def has_own(body: Sequence[Statement], *kinds: type[cst.CSTNode]) -> bool:
    """Whether statements have one of these nodes in their own scope."""

    class Search(cst.CSTVisitor):
        found = False

        def on_visit(self, node: cst.CSTNode) -> bool:
            self.found = self.found or isinstance(node, kinds)
            return not isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.Lambda))

    search = Search()
    for statement in body:
        statement.visit(search)
    return search.found


class Rename(cst.CSTTransformer):
    """Puts expressions in the place of names, where they are read or assigned."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names
        self.quote = '"'

    def visit_FormattedString(self, node: cst.FormattedString) -> None:
        self.quote = "'" if node.quote == '"' else '"'

    def leave_FormattedString(
        self, original_node: cst.FormattedString, updated_node: cst.FormattedString
    ) -> cst.FormattedString:
        self.quote = '"'
        return updated_node

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        new = self.names.get(updated_node.value)
        return updated_node if new is None else expression(new.replace('"', self.quote))

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

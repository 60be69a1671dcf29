"""Functions of the program that a call names, where no run reaches the call."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.migration.analysis.passed_names import file_of
from fsdplint.migration.analysis.variables import definition_at
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import Imported, bindings_of

MAX_FILES = 3  # that pass a function on to one another

Found = tuple[Source, cst.FunctionDef]


def called_function(program: Program, source: Source, func: cst.BaseExpression) -> Found | None:
    """The function of the top level of a file that a name, or an attribute of a module, refers to."""
    name = func.value if isinstance(func, cst.Attribute) else func
    if not isinstance(name, cst.Name):
        return None
    bindings = bindings_of(source)
    scope = bindings.owner(bindings.scope_at(name), name.value)
    if scope is None:
        starred = isinstance(func, cst.Name) and bool(bindings.module.star)
        return _unique_function(program, name.value) if starred else None
    imported = [item for item in scope.imports if item.local == name.value]
    if isinstance(func, cst.Attribute):
        if len(imported) != 1 or scope.others.get(name.value):
            return None
        other = _module(program, source, imported[0])
        return _in_file(program, other, func.attr.value) if other is not None else None
    if scope is not bindings.module and not imported:
        return None
    if not imported:
        return _in_file(program, source, name.value)
    return (
        _find_imported(program, source, imported, 0)
        if scope.others.get(name.value) is None
        else None
    )


def local_function(source: Source, name: cst.BaseExpression) -> cst.FunctionDef | None:
    """The function that a variable of a function holds, if it holds nothing else beside None."""
    if not isinstance(name, cst.Name):
        return None
    bindings = bindings_of(source)
    scope = bindings.owner(bindings.scope_at(name), name.value)
    if scope is None or scope is bindings.module:
        return None
    if any(item.local == name.value for item in scope.imports):
        return None
    functions: list[cst.FunctionDef] = []
    for node in scope.others.get(name.value, ()):
        holder = node if isinstance(node, cst.FunctionDef) else source.parent(node)
        if isinstance(holder, cst.FunctionDef) and holder.name.value == name.value:
            functions.append(holder)
            continue
        assigned = definition_at(source, node)
        if assigned is None or not is_constant(assigned.value, "None"):
            return None
    return functions[0] if len(functions) == 1 else None


def _module(program: Program, source: Source, item: Imported) -> Source | None:
    """The file of an imported module, if the local name is that of the module."""
    if item.name is None and "." in item.module and not item.renamed:
        return None  # `import a.b` binds `a`
    return file_of(program, source, item.full)


def _find_imported(
    program: Program, source: Source, items: list[Imported], depth: int
) -> Found | None:
    if len(items) != 1 or items[0].name is None or depth > MAX_FILES:
        return None
    other = file_of(program, source, items[0].module)
    return _in_file(program, other, items[0].name, depth) if other is not None else None


def _in_file(program: Program, source: Source, name: str, depth: int = 0) -> Found | None:
    """The only definition of a function at the top level of a file, or of one that it imports."""
    scope = bindings_of(source).module
    items = [item for item in scope.imports if item.local == name]
    if items:
        return None if scope.others.get(name) else _find_imported(program, source, items, depth + 1)
    found = [
        one
        for one in source.tree.body
        if isinstance(one, cst.FunctionDef) and one.name.value == name
    ]
    if len(found) != 1 or len(scope.others.get(name, ())) != 1:
        return None
    return source, found[0]


def _unique_function(program: Program, name: str) -> Found | None:
    """The only function of this name in all files, for a name of an `import *`."""
    found = [
        (source, one)
        for source in program.sources.values()
        for one in source.tree.body
        if isinstance(one, cst.FunctionDef) and one.name.value == name
    ]
    return found[0] if len(found) == 1 else None

"""Parameters of the program's functions that only arguments of FSDP1 have read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from fsdplint.diagnostics.finding import Edit
from fsdplint.migration.analysis.variables import reads
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of

DETAIL = (
    "FSDP2 does not need the value, or every value that these files pass means the same to it. Remove the "
    "parameter and the callers' arguments."
)


def note(migration: Migration, edits: Sequence[Edit]) -> None:
    """Add a note for each parameter that no code reads after the migration."""
    for source in migration.sources:
        own = [edit for edit in edits if edit.path == source.path]
        for function in _functions(source) if own else ():
            for parameter in _unread_parameters(source, function, own):
                name = parameter.name.value
                migration.note(
                    f"`{function.name.value}` no longer reads its parameter `{name}`",
                    source,
                    parameter,
                    detail=DETAIL,
                )


def _functions(source: Source) -> Iterator[cst.FunctionDef]:
    for node in bindings_of(source).scopes:
        if isinstance(node, cst.FunctionDef):
            yield node


def _unread_parameters(
    source: Source, function: cst.FunctionDef, edits: Sequence[Edit]
) -> Iterator[cst.Param]:
    left, right = source.span(function.body)
    inside = [edit for edit in edits if left <= edit.start and edit.end <= right]
    params = function.params
    given = [*params.posonly_params, *params.params]
    if _is_method(source, function):
        del given[:1]  # the object
    for parameter in (*given, *params.kwonly_params):
        name = parameter.name.value
        word = re.compile(rf"\b{re.escape(name)}\b")
        if not inside or any(word.search(edit.text) for edit in inside):
            continue
        places = reads(source, function.body, name)
        if places and all(_is_removed(source, place, inside) for place in places):
            yield parameter


def _is_method(source: Source, function: cst.FunctionDef) -> bool:
    """Whether a function gets its object, or its class, as its first argument."""
    block = source.parent(function)
    in_class = block is not None and isinstance(source.parent(block), cst.ClassDef)
    marks = (source.code(one.decorator) for one in function.decorators)
    return in_class and "staticmethod" not in marks


def _is_removed(source: Source, node: cst.CSTNode, edits: Sequence[Edit]) -> bool:
    """Whether an edit removes a node."""
    start, end = source.span(node)
    return any(edit.start <= start and end <= edit.end for edit in edits)

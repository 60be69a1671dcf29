"""How the test of a policy is written where FSDP1's policy was made: as a function of a module."""

from __future__ import annotations

import libcst as cst

from fsdplint.fixes.syntax import library_name
from fsdplint.migration.constructor.local_functions import matching_helper
from fsdplint.migration.context import Migration
from fsdplint.migration.text import width
from fsdplint.source.source import Source
from fsdplint.syntax.layout import statement_of


def write(
    migration: Migration, source: Source, node: cst.BaseExpression, test: str, *, sharder: bool
) -> None:
    """Put the test of a variable `module` in place of a policy.

    sharder: as a function that shards the submodules of a model for which the test holds.
    """
    text = f"lambda module: {test}"
    if test.endswith("(module)") and test.removesuffix("(module)").isidentifier():
        text = test.removesuffix("(module)")
    if sharder:
        partial = library_name(migration.rewrite, source, "functools.partial", node)
        helper = matching_helper(migration, source, node)
        migration.substitute(source, node, f"{partial}({helper}, test={text})")
        return
    method = _is_method(source, node)
    room = width(source) - (source.span(node)[0] - source.line_start(source.span(node)[0]))
    parts = test.split(" or ")
    if len(text) > room and len(parts) > 1:
        lines = "".join(f"\n\t{'or ' if number else ''}{part}" for number, part in enumerate(parts))
        text = f"lambda module: ({lines}\n)"
    text = f"staticmethod({text})" if method else text
    migration.substitute(source, node, migration.indented(source, node, text))
    _in_classes(migration, node)


def _is_method(source: Source, node: cst.CSTNode) -> bool:
    """Whether an attribute of a class is made here: a function there would be a method."""
    statement = statement_of(source, node)
    if not isinstance(statement, cst.Assign | cst.AnnAssign) or statement.value is not node:
        return False
    line = source.parent(statement)
    body = source.parent(line) if line is not None else None
    return isinstance(body, cst.IndentedBlock) and isinstance(source.parent(body), cst.ClassDef)


def _in_classes(migration: Migration, policy: cst.CSTNode) -> None:
    """The same for attributes that a class is given by the name of the policy."""
    for source in migration.sources:
        for klass in source.descend(source.tree):
            if not isinstance(klass, cst.ClassDef):
                continue
            for node in (part for line in klass.body.body for part in line.children):
                value = node.value if isinstance(node, cst.Assign | cst.AnnAssign) else None
                if not isinstance(value, cst.Name | cst.Attribute):
                    continue
                made = (one.created_at for one in migration.values(value))
                if any(site is not None and site.node is policy for site in made):
                    text = source.code(value)
                    migration.substitute(source, value, f"staticmethod({text})")

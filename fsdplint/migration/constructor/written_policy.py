"""Writes the test of a policy in place of FSDP1's policy, as a function of a module."""

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
    """Put a test of the variable `module` in place of a policy.

    sharder: write a function of a model instead, which shards the submodules that pass the test.
    """
    text = f"lambda module: {test}"
    if test.endswith("(module)") and test.removesuffix("(module)").isidentifier():
        text = test.removesuffix("(module)")
    if sharder:
        partial = library_name(migration.rewrite, source, "functools.partial", node)
        helper = matching_helper(migration, source, node)
        migration.substitute(source, node, f"{partial}({helper}, test={text})")
        return
    room = width(source) - (source.span(node)[0] - source.line_start(source.span(node)[0]))
    parts = test.split(" or ")
    if len(text) > room and len(parts) > 1:
        lines = "".join(f"\n\t{'or ' if number else ''}{part}" for number, part in enumerate(parts))
        text = f"lambda module: ({lines}\n)"
    parent = source.parent(node)
    is_first = parent.body if isinstance(parent, cst.IfExp) else getattr(parent, "left", None)
    if is_first is node and "lambda" in text:
        text = f"({text})"  # an operator after it would belong to the function
    text = f"staticmethod({text})" if _is_class_attribute(source, node) else text
    migration.substitute(source, node, migration.indent_at(source, node, text))
    _write_class_attributes(migration, node)


def _is_class_attribute(source: Source, node: cst.CSTNode) -> bool:
    """Whether a class body assigns the policy to an attribute: a function there would be a method."""
    statement = statement_of(source, node)
    if not isinstance(statement, cst.Assign | cst.AnnAssign) or statement.value is not node:
        return False
    line = source.parent(statement)
    body = source.parent(line) if line is not None else None
    return isinstance(body, cst.IndentedBlock) and isinstance(source.parent(body), cst.ClassDef)


def _write_class_attributes(migration: Migration, policy: cst.CSTNode) -> None:
    """Mark the attributes that a class body assigns the policy's variable to as static."""
    for source in migration.sources:
        for klass in source.descend(source.tree):
            if not isinstance(klass, cst.ClassDef):
                continue
            for node in (part for line in klass.body.body for part in line.children):
                value = node.value if isinstance(node, cst.Assign | cst.AnnAssign) else None
                if not isinstance(value, cst.Name | cst.Attribute):
                    continue
                sites = (found.created_at for found in migration.values(value))
                if any(site is not None and site.node is policy for site in sites):
                    text = source.code(value)
                    migration.substitute(source, value, f"staticmethod({text})")

"""Choices whose arms become equal: `model.module if wrapped else model` is `model` after the rewrite."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.migration.constructor.unused_variables import is_query
from fsdplint.migration.context import Migration, nodes
from fsdplint.source.source import Source


def rewrite(migration: Migration, source: Source) -> None:
    """Replace the choices of which the migration changes an arm, inner ones first."""
    for node in reversed(nodes(source)):
        if isinstance(node, cst.IfExp) and is_query(migration, node.test):
            _rewrite_choice(migration, source, node)


def _rewrite_choice(migration: Migration, source: Source, node: cst.IfExp) -> None:
    body, orelse = (migration.text(source, arm) for arm in (node.body, node.orelse))
    if body == source.code(node.body) and orelse == source.code(node.orelse):
        return
    if body == orelse:
        migration.substitute(source, node, body)
        return
    # `(A if test else B) if test else C` is `A if test else C`
    test = re.escape(migration.text(source, node.test))
    inner = re.fullmatch(rf"\((?P<first>[^()]+(\(\))?) if {test} else [^()]+(\(\))?\)", body)
    if inner is not None:
        migration.substitute(source, node.body, inner["first"])

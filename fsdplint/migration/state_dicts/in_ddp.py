"""Models that DDP wraps in other configurations, where their states have other names."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend


def may_be_ddp(migration: Migration, source: Source, node: cst.BaseExpression) -> bool:
    """Whether DDP wraps a model in other configurations."""
    values = migration.values(node)
    if values or migration.wrapping_of(node) != "sometimes":
        return any(isinstance(v, ModuleValue) and v.wrapper == "ddp" for v in values)
    sources = migration.program.sources.values()
    if not any("DistributedDataParallel" in other.text for other in sources):
        return False
    return not _is_unwrapped_before(source, node)


def _is_unwrapped_before(source: Source, node: cst.BaseExpression) -> bool:
    """Whether `model = model.module` comes before a use of the model in the same function."""
    model, at = source.code(node), source.span(node)[0]
    for part in descend(function_around(source, node)):
        if not isinstance(part, cst.Assign) or source.span(part)[1] > at:
            continue
        value = part.value.body if isinstance(part.value, cst.IfExp) else part.value
        if source.code(value) != f"{model}.module":
            continue
        targets = [source.code(target.target) for target in part.targets]
        if model in targets and not _is_in_other_branch(source, part, at):
            return True
    return False


def _is_in_other_branch(source: Source, node: cst.CSTNode, place: int) -> bool:
    """Whether a place after a node is in the other branch of an `if`."""
    for outer in ancestors(source, node):
        if isinstance(outer, cst.If) and outer.orelse is not None:
            start, end = source.span(outer.orelse)
            if start <= place < end and source.span(node)[1] <= start:
                return True
    return False

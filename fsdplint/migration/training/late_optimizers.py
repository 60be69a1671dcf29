"""Optimizers that are built after a forward without a backward.

FSDP1 shows the parameters of the root as shards after it. FSDP2 leaves them gathered until a backward
pass, and an optimizer over gathered parameters never updates the shards. So the model is sharded again
before the optimizer is built.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.context import Migration
from fsdplint.migration.state_dicts.resharding import reshard_before
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.layout import descend
from fsdplint.trace import OptimizerBuilt

TITLE = "Shard the model again before the optimizer is built"
GIVES = ("parameters", "named_parameters")


def reshard(migration: Migration) -> None:
    """Shard the model of each optimizer again where a forward has left it gathered."""
    for source, node in _optimizers(migration):
        model = _model_of(migration, node)
        if model is None or migration.is_blocked(node):
            continue
        try:
            if reshard_before(migration, source, node, model):
                migration.step(source, node, TITLE)
        except Blocked:
            continue  # the validation shows whether the optimizer is built over gathered parameters


def _optimizers(migration: Migration) -> dict[tuple[Source, cst.Call], None]:
    """The calls that build an optimizer."""
    return {
        (event.site.source, event.site.node): None
        for trace in migration.program.traces
        for event in trace.of(OptimizerBuilt)
        if isinstance(event.site, NodeSite) and isinstance(event.site.node, cst.Call)
    }


def _model_of(migration: Migration, call: cst.Call) -> cst.BaseExpression | None:
    """The expression of the only model whose parameters a call names."""
    found: dict[str, cst.BaseExpression] = {}
    for arg in call.args:
        for part in descend(arg.value):
            if not isinstance(part, cst.Call) or not isinstance(part.func, cst.Attribute):
                continue
            owner = part.func.value
            if part.func.attr.value in GIVES and any(
                isinstance(value, ModuleValue) for value in migration.values(owner)
            ):
                found.setdefault(cst.Module([]).code_for_node(owner), owner)
    return next(iter(found.values())) if len(found) == 1 else None

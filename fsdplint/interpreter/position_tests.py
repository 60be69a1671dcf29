"""Tests of the position of a rank in its group, by which ranks of other groups go the same way."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import MeshPosition, RankValue
from fsdplint.interpreter.values import constant
from fsdplint.source.source import NodeSite
from fsdplint.trace import Guard

OTHER_GROUP = "?"


def tested_position(run: Run) -> str:
    """The dimension of the innermost such test that certainly keeps ranks away; "" for none.

    It does if the ranks at other positions go on behind the statement: it has no other branch.
    """
    found = (_dimension(run, entry.guard) for entry in reversed(run.guards))
    return next((dimension for dimension in found if dimension), "")


def _dimension(run: Run, guard: Guard) -> str:
    if not isinstance(guard.site, NodeSite):
        return ""
    test = guard.site.node
    if not guard.holds or not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return ""
    statement = guard.site.source.parent(test)
    if not isinstance(statement, cst.If) or statement.orelse is not None:
        return ""
    (target,) = test.comparisons
    if not isinstance(target.operator, cst.Equal):
        return ""
    compared = target.comparator
    if not isinstance(compared, cst.Integer):
        if not isinstance(constant(run.evaluations.get(compared)), int):
            return ""
    position = run.evaluations.get(test.left)
    if isinstance(position, MeshPosition):
        return position.dimension
    in_group = isinstance(position, RankValue) and position.scope == "group"
    return OTHER_GROUP if in_group else ""

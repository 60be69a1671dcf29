"""Tests of the position of a rank: in its group, among the turns of a loop, and in a list of ranks.

By the first, ranks of other groups go the same way. By the second (`i % world_size == rank`), each
rank has turns of its own. By the third, the members of a process group go another way than others.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.forward_summaries import abstract
from fsdplint.interpreter.ranks import depends_on_process
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import MeshPosition, RankValue
from fsdplint.interpreter.values import Value, constant
from fsdplint.source.positions import descend
from fsdplint.source.source import NodeSite
from fsdplint.trace import Guard, GuardKind, Ranks

OTHER_GROUP = "?"
_LOOPS = (cst.For, cst.While, cst.CompFor)


def tested_position(run: Run) -> str:
    """The dimension of the innermost such test that certainly keeps ranks away; "" for none.

    It does if the ranks at other positions go on behind the statement: it has no other branch.
    """
    found = (_dimension(run, entry.guard) for entry in reversed(run.guards))
    return next((dimension for dimension in found if dimension), "")


def on_some_ranks(run: Run) -> bool:
    """Whether only some ranks may be here: by their number, or by their place in a mesh."""
    if not run.guards:
        return False
    return run.ranks() is not Ranks.ALL or any(_tests_place(run, e.guard) for e in run.guards)


def _tests_place(run: Run, guard: Guard) -> bool:
    if not isinstance(guard.site, NodeSite) or not isinstance(guard.site.node, cst.BaseExpression):
        return False
    values = (run.evaluations.get(part) for part in descend(guard.site.node))
    return any(one is not None and depends_on_process(one) for one in values)


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


def changing_loop(run: Run, node: cst.CSTNode) -> NodeSite | None:
    """The loop around code that changes a name in each turn that the code reads."""
    names = {part.value for part in descend(node) if isinstance(part, cst.Name)}
    outer = run.source.parent(node)
    while outer is not None and not isinstance(outer, cst.FunctionDef | cst.Lambda):
        if isinstance(outer, _LOOPS) and names & _changed_by_turn(outer):
            return run.site(outer)
        outer = run.source.parent(outer)
    return None


def _changed_by_turn(loop: cst.For | cst.While | cst.CompFor) -> set[str]:
    targets: list[cst.CSTNode] = [] if isinstance(loop, cst.While) else [loop.target]
    if not isinstance(loop, cst.CompFor):
        targets += [part.target for part in descend(loop.body) if isinstance(part, cst.AugAssign)]
    return {part.value for one in targets for part in descend(one) if isinstance(part, cst.Name)}


def is_for_members(run: Run, ranks: Value | None) -> bool:
    """Whether a test of the rank lets only some ranks pass: `if rank in ranks:`."""
    if ranks is None:
        return False
    for entry in run.guards:
        guard = entry.guard
        test = guard.site.node if isinstance(guard.site, NodeSite) else None
        if guard.kind is GuardKind.RANK and isinstance(test, cst.Comparison):
            relation = test.comparisons[0]
            known = run.evaluations.get(relation.comparator)
            passes = cst.In if guard.holds else cst.NotIn
            if isinstance(relation.operator, passes) and known is not None:
                return abstract(run.settle(known)) == abstract(run.settle(ranks))
    return False

"""Models whose parameters the program sets after a forward without a backward, such as averages.

After such a forward FSDP1 shows the shards again, but its root computes with the old values in the next
forward (seen with torch 2.13). FSDP2 leaves the parameters of the root gathered, and all others that its
strategy keeps: the program would set whole tensors, which fails beside DTensors, and which are lost. So
the new root is sharded again after each forward. If other modules may stay gathered, the program shards
all of them again after such a forward.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.context import Migration, expression
from fsdplint.migration.reshard_loop import reshard_loop
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import statement_of
from fsdplint.trace import BackwardRun, Called, GradMode, StateTaken, Trace, WeightsSet, Wrapped


def calls_before_sets(migration: Migration, call: cst.Call) -> list[Called]:
    """The calls that leave the model of a constructor call gathered while a run sets its parameters."""
    return [one for trace in migration.program.traces for one in _calls_before_sets(trace, call)]


def note_order(migration: Migration, source: Source, call: cst.Call) -> None:
    """Note that forwards compute with other values of the root than in FSDP1."""
    migration.note(
        "forwards without a backward use the parameters that the program has set before",
        source,
        call,
        detail="FSDP1 computed with the root's parameters from before.",
    )


def reshard_after(migration: Migration, calls: list[Called]) -> bool:
    """Shard all modules of a model again after some calls of it.

    Returns False, and changes nothing, if a call may train or no lines can be put after it.
    """
    sites = {one.site.node: one.site.source for one in calls if isinstance(one.site, NodeSite)}
    if not all(isinstance(one.site, NodeSite) and one.grad is not GradMode.ON for one in calls):
        return False
    if not all(_has_place(source, node) for node, source in sites.items()):
        return False
    for node, source in sites.items():
        assert isinstance(node, cst.Call)
        lines = reshard_loop(migration, source, node, expression(migration, source, node.func))
        comment = "# The program sets the parameters, which have to be sharded then."
        migration.rewrite.insert_after(source, statement_of(source, node), [comment, *lines])
    return True


def _has_place(source: Source, node: cst.CSTNode) -> bool:
    """Whether lines after the statement of a call of a model run right after the call."""
    if not isinstance(node, cst.Call) or not is_repeatable(node.func):
        return False
    statement = statement_of(source, node)
    if not isinstance(statement, cst.Assign | cst.AnnAssign | cst.AugAssign | cst.Expr):
        return False
    line = source.parent(statement)
    around = (cst.Lambda, cst.BaseComp, cst.SimpleStatementSuite)
    inside = itertools.takewhile(lambda one: one is not line, ancestors(source, node))
    return isinstance(line, cst.SimpleStatementLine) and not any(
        isinstance(one, around) for one in inside
    )


def _calls_before_sets(trace: Trace, call: cst.Call) -> Iterator[Called]:
    wrapped: dict[str, str] = {}  # and the module inside of each
    gathered: dict[str, list[Called]] = {}
    for event in trace:
        if isinstance(event, Wrapped):
            if isinstance(event.site, NodeSite) and event.site.node is call:
                wrapped[event.module] = event.inner
        elif isinstance(event, Called) and event.module in wrapped:
            gathered.setdefault(event.module, []).append(event)
        elif isinstance(event, BackwardRun):
            gathered = {
                module: calls
                for module, calls in gathered.items()
                if all(one.grad is not GradMode.ON for one in calls)
            }
        elif isinstance(event, StateTaken):
            gathered.pop(event.of, None)
        elif isinstance(event, WeightsSet):
            for module, calls in gathered.items():
                if {module, wrapped[module]} & set(event.modules):
                    yield from calls

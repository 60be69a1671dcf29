"""The Fabrics and Trainers that get a strategy for FSDP1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.lightning_names import FABRICS
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.lightning import FABRIC_UNKNOWN, STRATEGY_LEFT
from fsdplint.migration.context import Migration
from fsdplint.migration.frameworks.fabric_names import (
    NAMES,
    PARAMETERS,
    STRATEGIES,
    strategies_in,
)
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.qualified_names import symbols_in
from fsdplint.trace import FrameworkConfigured


@dataclass(frozen=True)
class FabricCall:
    """A call of Fabric or Trainer that may get the strategy for FSDP1.

    Attributes:
        named: its arguments by name.
        options: its arguments in the runs in which it gets this strategy.
        is_trainer: whether it is a call of Trainer.
    """

    source: Source
    node: cst.Call
    named: dict[str, cst.Arg]
    options: list[dict[str, object]]
    is_trainer: bool = False


def strategies_left(migration: Migration) -> list[Blocked]:
    """The blockers of the strategies in some files, which become functions in another form."""
    return [
        Blocked(source, node, STRATEGY_LEFT())
        for source in migration.sources
        for node in strategies_in(source)
        if node not in migration.uncalled_nodes
    ]


def fabrics_of(
    migration: Migration, source: Source, made: cst.BaseExpression, api: str
) -> list[FabricCall]:
    """The calls of Fabric, or of Trainer, that get a strategy.

    made: the call that makes the strategy, or its name in the call of Fabric.

    Raises:
        Blocked: none is known, or its arguments cannot be read.
    """
    found: dict[cst.Call, FabricCall] = {}
    for event, site in events(migration, api):
        assert isinstance(site.node, cst.Call)
        named, rest = arguments(site.node, PARAMETERS if api == "Fabric" else ())
        given = named.get("strategy")
        if rest or given is None or not _gets(event, given.value, made):
            continue
        new = FabricCall(site.source, site.node, named, [], is_trainer=api == "Trainer")
        one = found.setdefault(site.node, new)
        one.options.append(dict(event.options))
    if not found:
        raise Blocked(source, made, FABRIC_UNKNOWN(api=api))
    return list(found.values())


def events(migration: Migration, api: str) -> Iterator[tuple[FrameworkConfigured, NodeSite]]:
    """The calls of one of Lightning's classes in all traces."""
    for trace in full_program(migration.program).traces:
        for event in trace.of(FrameworkConfigured):
            site = event.site
            if event.framework == "lightning" and event.api == api:
                if isinstance(site, NodeSite) and isinstance(site.node, cst.Call):
                    yield event, site


def has_other_strategy(migration: Migration, source: Source, fabric: cst.BaseExpression) -> bool:
    """Whether a variable is a Fabric that certainly has another strategy."""
    found = definitions(source, fabric) if isinstance(fabric, cst.Name) else None
    made = {one.value for one in found or ()}
    sharding = {
        site.node
        for event, site in events(migration, "Fabric")
        if event.options.get("strategy") in (*STRATEGIES, *NAMES)
    }
    every = {site.node for _, site in events(migration, "Fabric")}
    return bool(made) and all(
        one not in sharding and (one in every or _has_no_strategy(source, one)) for one in made
    )


def _is_call(source: Source, node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and symbols_in(source).get(node.func) in FABRICS


def _has_no_strategy(source: Source, node: cst.BaseExpression) -> bool:
    """Whether a node is a call of Fabric with the default strategy."""
    if not isinstance(node, cst.Call) or not _is_call(source, node):
        return False
    named, rest = arguments(node, PARAMETERS)
    return not rest and "strategy" not in named


def is_always_sharded(migration: Migration, files: list[Source]) -> bool:
    """Whether each Fabric of some files certainly has the strategy for FSDP1."""
    found = events(migration, "Fabric")
    chosen = [event.options.get("strategy") for event, site in found if site.source in files]
    return bool(chosen) and all(one in STRATEGIES or one in NAMES for one in chosen)


def _gets(event: FrameworkConfigured, given: cst.BaseExpression, made: cst.BaseExpression) -> bool:
    at = event.strategy
    return given is made or (isinstance(at, NodeSite) and at.node is made)

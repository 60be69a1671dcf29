"""Weights that modules share, and that FSDP1 may put into different units. FSDP2 rejects them."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.migration.analysis.units import Units
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import (
    WEIGHTS_PERHAPS_TIED_IN_UNITS,
    WEIGHTS_TIED_IN_UNITS,
)
from fsdplint.source.source import NodeSite
from fsdplint.trace import ParametersTied


def obstacles(program: Program) -> list[Blocked]:
    """A blocker at each constructor call whose units share a weight or may share one."""
    found: list[Blocked] = []
    for trace in program.traces:
        units = Units(trace)
        every = (_of_tie(units, event) for event in trace.of(ParametersTied))
        found += [one for one in every if one is not None]
    return found


def may_share(program: Program, call: cst.CSTNode) -> bool:
    """Whether a policy may put modules that share a weight into different units."""
    return any(
        one.node is call and one.blocker is WEIGHTS_PERHAPS_TIED_IN_UNITS
        for one in obstacles(program)
    )


def _of_tie(units: Units, event: ParametersTied) -> Blocked | None:
    """The blocker of two modules that share a weight, unless one unit holds it."""
    if event.other is None:
        return None
    one, other = units.unit(event.module), units.unit(event.other)
    wrap = units.outermost_wrap(event.module)
    if (
        wrap is None
        or units.outermost_wrap(event.other) is None
        or (one == other and one is not None)
    ):
        return None
    if one is not None and other is not None:
        wrap = units.wraps[one]
    if wrap.index < event.index or not isinstance(wrap.site, NodeSite):
        return None
    names = [units.groups.name(x) for x in (event.module, event.other)]
    shared = {"one": names[0], "other": names[1], "name": event.name}
    if one is not None and other is not None:
        reason = WEIGHTS_TIED_IN_UNITS(**shared)
    else:
        reason = WEIGHTS_PERHAPS_TIED_IN_UNITS(**shared)
    return Blocked(wrap.site.source, wrap.site.node, reason)

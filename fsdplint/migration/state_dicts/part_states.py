"""States of unwrapped modules with wrapped parts, and of parts of wrapped models.

After `model.layers[i] = FSDP(layer)` without a wrapped root, `model.state_dict()` has whole parameters
in FSDP1. So has the state of a part that the policy wraps as a unit. Parameters that belong to the
flat parameter of an outer module are missing, or are this rank's flat shard.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import ModuleValue, Value
from fsdplint.migration.analysis.unreached_code import UnreachedNames
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.program import CODE_NOT_REACHED
from fsdplint.migration.context import Migration, attributes
from fsdplint.source.source import NodeSite
from fsdplint.trace import Sharding, StateLoaded, StateTaken, Trace, Wrapped


def calls(migration: Migration) -> dict[cst.CSTNode, bool]:
    """The calls that take or load such a state, and whether FSDP1 gives whole parameters there."""
    if migration.states.part_calls is None:
        migration.states.part_calls = _find(migration)
    return migration.states.part_calls


def _find(migration: Migration) -> dict[cst.CSTNode, bool]:
    found: dict[cst.CSTNode, bool] = {}
    for trace in migration.program.traces:
        states: list[StateTaken | StateLoaded] = [*trace.of(StateTaken), *trace.of(StateLoaded)]
        for event in states:
            module = event.of if isinstance(event, StateTaken) else event.into
            if not isinstance(event.site, NodeSite) or module not in trace.modules:
                continue
            whole = _is_whole(trace, module, list(trace.before(event, Wrapped)), event)
            if whole is not None:
                node = event.site.node
                found[node] = whole and found.get(node, True)
    return found


def _is_whole(
    trace: Trace, module: str, wraps: list[Wrapped], event: StateTaken | StateLoaded
) -> bool | None:
    """Whether a module's state is whole in FSDP1; None if FSDP1 does not shard it."""
    if trace.modules[module].wrapper or any(one.inner == module for one in wraps):
        return None
    around = [one for one in wraps if trace.contains(one.inner, module)]
    if around:
        separate = {one.module for one in wraps}.union(*(one.units or () for one in around))
        return _is_covered(trace, module, separate)
    return True if trace.sharded_within(module, event) is Sharding.FSDP1 else None


def _is_covered(trace: Trace, module: str, separate: set[str]) -> bool:
    """Whether all parameters of a module belong to units inside of it."""
    info = trace.modules[module]
    return module in separate or (
        info.children_known
        and info.own_parameters is False
        and all(_is_covered(trace, child, separate) for child in info.children.values())
    )


def holders(migration: Migration) -> set[str]:
    """The unwrapped modules with parts that FSDP1 wraps."""
    if migration.states.holders is None:
        migration.states.holders = {
            module
            for trace in migration.program.traces
            for module, info in trace.modules.items()
            if not info.wrapper and trace.sharded_within(module) is Sharding.FSDP1
        }
    return migration.states.holders


def check(migration: Migration) -> None:
    """Block on states of modules with wrapped parts in code that is not reached."""
    known = holders(migration)

    def holds(value: Value) -> bool:
        return isinstance(value, ModuleValue) and value.id in known

    found = UnreachedNames(migration.sources, migration.values, holds).found if known else {}
    for source in migration.sources:
        for node in attributes(source):
            if node.attr.value not in ("state_dict", "load_state_dict") or node.value not in found:
                continue
            if not migration.is_changed(source, node) and not migration.wrapping_of(node.value):
                text = source.code(node)
                reason = CODE_NOT_REACHED(code=text)
                migration.blockers.append(Blocked(source, node, reason))

"""Units that `wrap` makes while a model is built: they are sharded after the model is built.

`self.blocks = nn.ModuleList([wrap(Block()) for _ in range(depth)])` leaves plain blocks, and the code
that wraps the model gets a loop over `model.blocks`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.constructor.unit_tree import EVERY, UnitTree
from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite
from fsdplint.trace import Trace, Wrapped

_CONTAINERS = {
    "torch.nn.ModuleList": "list",
    "torch.nn.Sequential": "list",
    "torch.nn.ModuleDict": "dict",
}


class NoTree(Exception):
    """The code does not show which modules are units."""


@dataclass
class ConstructedUnits:
    """The units of one model, and the calls of `wrap` that make them.

    Attributes:
        modules: the values of the units.
    """

    tree: UnitTree
    modules: list[ModuleValue]


def constructed_units(
    migration: Migration, root: cst.Call, wraps: Iterable[cst.Call]
) -> ConstructedUnits | None:
    """The units that calls of `wrap` make in the models of another call.

    Returns None if they are not the same in each model, or not known.
    """
    calls = set(wraps)
    found: UnitTree | None = None
    for trace in migration.program.traces:
        wrapped = [
            (event, event.site.node)
            for event in trace.of(Wrapped)
            if isinstance(event.site, NodeSite)
        ]
        made = {event.module for event, node in wrapped if node in calls}
        for event, node in wrapped:
            if node is not root:
                continue
            try:
                tree = _tree(trace, event.inner, made)
            except NoTree:
                return None
            if tree is None or (found is not None and tree != found):
                return None
            found = tree
    if found is None:
        return None
    values = [value for call in calls for value in migration.values(call.args[0].value)]
    return ConstructedUnits(found, [one for one in values if isinstance(one, ModuleValue)])


def _tree(
    trace: Trace, module: str, made: set[str], above: tuple[str, ...] = ()
) -> UnitTree | None:
    """The units in a module; None if there are none."""
    info = trace.modules[module]
    if module in above:
        raise NoTree
    above = (*above, module)
    if info.wrapper:
        inside = _tree(trace, info.inner, made, above) if info.inner is not None else None
        if info.wrapper != "fsdp1":
            if inside is not None:
                raise NoTree
            return None
        if module not in made:
            raise NoTree
        inside = inside or UnitTree()
        inside.is_unit = True
        return inside
    children = {
        name: _tree(trace, child, made, above)
        for name, child in info.children.items()
        if child in trace.modules
    }
    holding = {name: tree for name, tree in children.items() if tree is not None}
    if not holding:
        return None
    container = _CONTAINERS.get(info.qualified_class or "", "")
    first = next(iter(holding.values()))
    if container and info.children_known and all(tree == first for tree in children.values()):
        return UnitTree(container=container, children={EVERY: first})
    for name in holding:
        repeated = trace.modules[info.children[name]].repeated
        named = name.isidentifier() if not container else not name.startswith("*")
        if repeated or not named or (container == "list" and not name.isdigit()):
            raise NoTree
    return UnitTree(container=container, children=holding)

"""`with enable_wrap(wrapper_cls=FSDP, ...):` and the calls of `wrap` in it.

`wrap(module)` is `FSDP(module, ...)` with the arguments of the block around it, and is rewritten in
the same way. Where it runs while a model is built, the block shards the module afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.blockers import Blocked, Reason
from fsdplint.migration.blockers.policies import (
    ENABLE_WRAP_CLASS,
    ENABLE_WRAP_NOT_HEAD,
    WRAP_NOT_CALLED,
    WRAP_OUTSIDE_BLOCK,
)
from fsdplint.migration.constructor.constructed_units import ConstructedUnits, constructed_units
from fsdplint.migration.constructor.wrap import rewrite_call
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.facts import Precision
from fsdplint.migration.names import FSDP
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.enclosing import ancestors
from fsdplint.trace import Wrapped


@dataclass
class EnableWrapBlock:
    """One block.

    Attributes:
        block: the statement.
        call: the call of `enable_wrap`.
        named, rest: the arguments that it gives its calls of `wrap`, by name and otherwise.
        wraps: these calls.
        units: the units that are made while the models of these calls are built, by call.
    """

    source: Source
    block: cst.With
    call: cst.Call
    named: dict[str, cst.Arg]
    rest: list[cst.Arg]
    wraps: list[cst.Call] = field(default_factory=list)
    units: dict[cst.Call, ConstructedUnits] = field(default_factory=dict)


def collect(migration: Migration) -> list[EnableWrapBlock]:
    """Find the blocks that have a rewrite; the others become blockers."""
    found = []
    for source in migration.sources:
        for node in nodes(source):
            if migration.fsdp1(node) == "enable_wrap":
                block = _read_block(migration, source, node)
                if isinstance(block, Reason):
                    migration.consumed.add(node)
                    migration.blockers.append(Blocked(source, node, block))
                else:
                    migration.blocks.unwrapped.add(block.block)
                    found.append(block)
    constructing: list[tuple[Source, cst.Call]] = []
    for source in migration.sources:
        for node in nodes(source):
            if migration.fsdp1(node) == "wrap":
                outside = _attach(migration, source, node, found)
                constructing += [outside] if outside is not None else []
    _attach_constructing(migration, constructing, found)
    return found


def _read_block(
    migration: Migration, source: Source, node: cst.CSTNode
) -> EnableWrapBlock | Reason:
    call = source.parent(node)
    item = source.parent(call) if isinstance(call, cst.Call) and call.func is node else None
    block = source.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(call, cst.Call) or not isinstance(block, cst.With) or len(block.items) != 1:
        return ENABLE_WRAP_NOT_HEAD()
    named, rest = arguments(call, ())
    wrapper = named.pop("wrapper_cls", None)
    if wrapper is None or migration.fsdp1(wrapper.value) != FSDP:
        return ENABLE_WRAP_CLASS()
    return EnableWrapBlock(source, block, call, named, rest)


def _attach(
    migration: Migration, source: Source, node: cst.CSTNode, blocks: list[EnableWrapBlock]
) -> tuple[Source, cst.Call] | None:
    """Add a call of `wrap` to its block; a use that is no call becomes a blocker.

    Returns the call if it stands in no block.
    """
    call = source.parent(node)
    if not isinstance(call, cst.Call) or call.func is not node:
        migration.consumed.add(node)
        migration.blockers.append(Blocked(source, node, WRAP_NOT_CALLED()))
        return None
    block = _block_of(source, call, blocks)
    if block is None:
        return source, call
    block.wraps.append(call)
    migration.blocks.enabling[call] = [block.call]
    return None


def _block_of(
    source: Source, call: cst.Call, blocks: list[EnableWrapBlock]
) -> EnableWrapBlock | None:
    """The block in which a call of `wrap` stands; None if a function is between them."""
    for outer in ancestors(source, call):
        block = next((one for one in blocks if one.block is outer), None)
        if block is not None or isinstance(outer, cst.FunctionDef | cst.Lambda):
            return block
    return None


def _attach_constructing(
    migration: Migration,
    calls: list[tuple[Source, cst.Call]],
    blocks: list[EnableWrapBlock],
) -> None:
    """Leave out the calls of `wrap` that run while the model of a block is built.

    The block shards the modules that they get. A call of which this is not certain becomes a blocker.
    """
    certain = {call: _models(migration, call, blocks) for _, call in calls}
    roots = {root for found in certain.values() for root in found or ()}
    trees = {}
    for root in roots:
        inside = [call for call, found in certain.items() if root in (found or ())]
        trees[root] = constructed_units(migration, root, inside)
    for source, call in calls:
        migration.consumed.add(call.func)
        found = certain[call]
        if not found or any(trees[root] is None for root in found):
            migration.blockers.append(Blocked(source, call.func, WRAP_OUTSIDE_BLOCK()))
            continue
        migration.blocks.enabling[call] = [
            block.call for block in blocks if not found.isdisjoint(block.wraps)
        ]
        migration.substitute(source, call, migration.text(source, call.args[0].value))
        migration.forget(source, call.func)
        migration.step(source, call, "Shard the modules after the model is built")
    for block in blocks:
        for root in block.wraps:
            units = trees.get(root)
            if units is not None:
                block.units[root] = units


def _models(
    migration: Migration, call: cst.Call, blocks: list[EnableWrapBlock]
) -> set[cst.Call] | None:
    """The calls of `wrap` in blocks that wrap the models in which a call wraps a part.

    None if the call may also wrap something else.
    """
    if len(call.args) != 1 or call.args[0].star or call.args[0].keyword is not None:
        return None
    found: set[cst.Call] = set()
    for trace in migration.program.traces:
        wrapped = list(trace.of(Wrapped))
        for number, event in enumerate(wrapped):
            if not isinstance(event.site, NodeSite) or event.site.node is not call:
                continue
            block = _block_around(event, blocks)
            around = {
                other.site.node
                for other in wrapped[number + 1 :]
                if isinstance(other.site, NodeSite) and trace.contains(other.inner, event.module)
            }
            roots = around.intersection(block.wraps) if block is not None else set()
            if len(roots) != 1:
                return None
            found |= {root for root in roots if isinstance(root, cst.Call)}
    return found


def _block_around(event: Wrapped, blocks: list[EnableWrapBlock]) -> EnableWrapBlock | None:
    """The innermost block in which an event happened."""
    for site in reversed(event.stack):
        if isinstance(site, NodeSite):
            around = set(ancestors(site.source, site.node))
            inside = [one for one in blocks if one.block in around]
            if inside:
                return inside[-1]
    return None


def rewrite(migration: Migration, entry: EnableWrapBlock, precision: Precision) -> None:
    """Rewrite the calls of `wrap` in a block, and move its body out of it.

    Raises:
        Blocked: an argument has no rewrite.
    """
    migration.account_for(entry.source, entry.block.items[0])
    for call in entry.wraps:
        migration.consumed.add(call.func)
    shared: list[str] = []
    for call in reversed(entry.wraps):
        own, rest = arguments(call, ("module",))
        named = {**entry.named, **own}
        given = [*entry.rest, *rest]
        units = entry.units.get(call)
        rewrite_call(migration, entry.source, call, named, given, precision, shared, units)
    migration.unwrap(entry.source, entry.block, shared)
    migration.forget(entry.source, entry.block.items[0])
    if not entry.wraps:
        migration.step(entry.source, entry.call, "Shard with fully_shard")

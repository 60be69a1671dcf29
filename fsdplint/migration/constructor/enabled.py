"""`with enable_wrap(wrapper_cls=FSDP, ...):` and the calls of `wrap` in it.

`wrap(module)` is `FSDP(module, ...)` with the arguments of the block around it, and becomes what
that does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.variables import ancestors
from fsdplint.migration.blockers import Blocked, Reason
from fsdplint.migration.blockers.policies import (
    ENABLE_WRAP_CLASS,
    ENABLE_WRAP_NOT_HEAD,
    WRAP_NOT_CALLED,
    WRAP_OUTSIDE_BLOCK,
)
from fsdplint.migration.constructor.wrap import rewrite_call
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.facts import Precision
from fsdplint.migration.names import FSDP
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments


@dataclass
class Enabled:
    """One block and what its `wrap` calls are given."""

    source: Source
    block: cst.With
    call: cst.Call
    named: dict[str, cst.Arg]
    rest: list[cst.Arg]
    wraps: list[cst.Call] = field(default_factory=list)


def collect(migration: Migration) -> list[Enabled]:
    """The blocks that are rewritten; those that are not become blockers."""
    found = []
    for source in migration.sources:
        for node in nodes(source):
            if migration.fsdp1(node) == "enable_wrap":
                one = _enabled(migration, source, node)
                if isinstance(one, Reason):
                    migration.consumed.add(node)
                    migration.blockers.append(Blocked(source, node, one))
                else:
                    migration.blocks.unwrapped.add(one.block)
                    found.append(one)
    for source in migration.sources:
        for node in nodes(source):
            if migration.fsdp1(node) == "wrap":
                _attach(migration, source, node, found)
    return found


def _enabled(migration: Migration, source: Source, node: cst.CSTNode) -> Enabled | Reason:
    call = source.parent(node)
    item = source.parent(call) if isinstance(call, cst.Call) and call.func is node else None
    block = source.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(call, cst.Call) or not isinstance(block, cst.With) or len(block.items) != 1:
        return ENABLE_WRAP_NOT_HEAD()
    named, rest = arguments(call, ())
    wrapper = named.pop("wrapper_cls", None)
    if wrapper is None or migration.fsdp1(wrapper.value) != FSDP:
        return ENABLE_WRAP_CLASS()
    return Enabled(source, block, call, named, rest)


def _attach(migration: Migration, source: Source, node: cst.CSTNode, blocks: list[Enabled]) -> None:
    call = source.parent(node)
    around = list(ancestors(source, node))
    owner = next((one for inner in around for one in blocks if one.block is inner), None)
    reason = None
    if not isinstance(call, cst.Call) or call.func is not node:
        reason = WRAP_NOT_CALLED()
    elif owner is None or any(
        isinstance(a, cst.FunctionDef | cst.Lambda) and owner.block in ancestors(source, a)
        for a in around
    ):
        reason = WRAP_OUTSIDE_BLOCK()
    if reason is not None:
        migration.consumed.add(node)
        migration.blockers.append(Blocked(source, node, reason))
        return
    assert isinstance(call, cst.Call) and owner is not None
    owner.wraps.append(call)


def rewrite(migration: Migration, one: Enabled, precision: Precision) -> None:
    """Rewrite the calls of `wrap` in a block, and take its body out of it.

    Raises:
        Blocked: an argument has no faithful rewrite.
    """
    migration.account_for(one.source, one.block.items[0])
    for call in one.wraps:
        migration.consumed.add(call.func)
    shared: list[str] = []
    for call in reversed(one.wraps):
        own, rest = arguments(call, ("module",))
        named = {**one.named, **own}
        rewrite_call(migration, one.source, call, named, [*one.rest, *rest], precision, shared)
    migration.unwrap(one.source, one.block, shared)
    migration.forget(one.source, one.block.items[0])
    if not one.wraps:
        migration.step(one.source, one.call, "Shard with fully_shard")

"""`with enable_wrap(wrapper_cls=FSDP, ...):` and the calls of `wrap` in it.

`wrap(module)` is `FSDP(module, ...)` with the arguments of the block around it, and is rewritten in
the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.class_hierarchy import Classes
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
from fsdplint.migration.names import FSDP, NO_COUNTERPART
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.bindings import bindings_of
from fsdplint.trace import Wrapped


@dataclass
class EnableWrapBlock:
    """One block.

    Attributes:
        block: the statement.
        call: the call of `enable_wrap`.
        named, rest: the arguments that it gives its calls of `wrap`, by name and otherwise.
        wraps: these calls.
    """

    source: Source
    block: cst.With
    call: cst.Call
    named: dict[str, cst.Arg]
    rest: list[cst.Arg]
    wraps: list[cst.Call] = field(default_factory=list)


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
    for source in migration.sources:
        for node in nodes(source):
            if migration.fsdp1(node) == "wrap":
                _attach(migration, source, node, found)
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
) -> None:
    """Add a call of `wrap` to its block; a use that belongs to no block becomes a blocker."""
    call = source.parent(node)
    if isinstance(call, cst.Call) and call.func is node:
        block = _block_of(migration, source, call, blocks)
        if block is not None:
            block.wraps.append(call)
            return
        reason = WRAP_OUTSIDE_BLOCK()
    else:
        reason = WRAP_NOT_CALLED()
    migration.consumed.add(node)
    migration.blockers.append(Blocked(source, node, reason))


def _block_of(
    migration: Migration, source: Source, call: cst.Call, blocks: list[EnableWrapBlock]
) -> EnableWrapBlock | None:
    """The block whose arguments a call of `wrap` gets; None if that is not known."""
    in_function = False
    for outer in ancestors(source, call):
        block = next((one for one in blocks if one.block is outer), None)
        if block is not None:
            return None if in_function else block
        in_function = in_function or isinstance(outer, cst.FunctionDef | cst.Lambda)
    return _block_around_runs(migration, source, call, blocks)


def _block_around_runs(
    migration: Migration, source: Source, call: cst.Call, blocks: list[EnableWrapBlock]
) -> EnableWrapBlock | None:
    """The block in which a call of `wrap` in a constructor runs, if its arguments mean the same there.

    They do if they use nothing but names of the file.
    """
    klass = next((x for x in ancestors(source, call) if isinstance(x, cst.ClassDef)), None)
    if klass is None or Classes(migration).family(klass) != {klass.name.value}:
        return None
    if not _always_wraps(migration, call, klass.name.value):
        return None
    if len(blocks) != 1 or blocks[0].source is not source or blocks[0].rest:
        return None
    bindings = bindings_of(source)
    for name, arg in blocks[0].named.items():
        for part in () if name in (*NO_COUNTERPART, "device_id") else source.descend(arg.value):
            if isinstance(part, cst.Name):
                owner = bindings.owner(bindings.scope_at(part), part.value)
                if owner not in (None, bindings.module):
                    return None
    return blocks[0]


def _always_wraps(migration: Migration, call: cst.Call, class_name: str) -> bool:
    """Whether a call of `wrap` wraps a part of each module of the class whose code it is in."""
    is_reached = False
    for trace in migration.program.traces:
        parts = [
            event.module
            for event in trace.of(Wrapped)
            if isinstance(event.site, NodeSite) and event.site.node is call
        ]
        is_reached = is_reached or bool(parts)
        for module in trace.modules.values():
            if module.class_name == class_name and not any(
                trace.contains(module.id, part) for part in parts
            ):
                return False
    return is_reached


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
        inside = entry.block in ancestors(entry.source, call)
        lines = shared if inside else None
        rewrite_call(migration, entry.source, call, named, [*entry.rest, *rest], precision, lines)
    migration.unwrap(entry.source, entry.block, shared)
    migration.forget(entry.source, entry.block.items[0])
    if not entry.wraps:
        migration.step(entry.source, entry.call, "Shard with fully_shard")

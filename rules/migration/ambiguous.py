"""Names that a file imports from FSDP1 in one place and from elsewhere in another.

`try: from torch_xla... import XlaFullyShardedDataParallel as FSDP` with torch's class in the `except`:
which of them a use means depends on the configuration, and only torch's may become FSDP2.
"""

from __future__ import annotations

from fsdplint.editing.bindings import Imported, bindings_of
from fsdplint.program.names import canonical, dotted
from fsdplint.program.source import Source
from fsdplint.rules.migration.context import Migration
from fsdplint.rules.migration.names import fsdp1_name


def block_ambiguous(migration: Migration, source: Source) -> None:
    """Block on each such name, and say nothing else about its uses."""
    found: dict[str, list[Imported]] = {}
    for item in bindings_of(source).imports():
        found.setdefault(item.spelled, []).append(item)
    hidden = set()
    for name, items in found.items():
        ours = [item for item in items if _name(item) is not None]
        other = next((x for x in items for y in ours if _differs(source, x, y)), None)
        if other is None:
            continue
        hidden.add(name)
        blocked = migration.block(
            source,
            other.statement,
            f"`{name}` is `{other.full}` in some configurations, and FSDP1's in others",
            advice="Give each of them a name of its own, and use it only in the branch that is about "
            "it; then run this again.",
        )
        migration.blockers.append(blocked)
    for node in list(migration.names):
        if source.parent(node) is not None and (dotted(node) or "").partition(".")[0] in hidden:
            del migration.names[node]


def _name(item: Imported) -> str | None:
    return fsdp1_name(canonical(item.full))


def _differs(source: Source, item: Imported, ours: Imported) -> bool:
    """Whether a name means something else here; the last of two in one block is what holds there."""
    if _name(item) == _name(ours):
        return False
    return _block(source, item) is not _block(source, ours)


def _block(source: Source, item: Imported) -> object:
    line = source.parent(item.statement)
    return source.parent(line) if line is not None else None

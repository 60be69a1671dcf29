"""Optimizers that are built before the model is wrapped.

With `use_orig_params=True` FSDP1 keeps the parameters that such an optimizer holds. FSDP2 puts new
ones in their place, so the optimizer is built after the sharding.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.moves import move_after, moved_with
from fsdplint.edits.places import Meeting, common_block
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.program import OPTIMIZER_FIRST
from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import OptimizerBuilt, Wrapped

TITLE = "Build the optimizer after the model is sharded"
TRAINS = "an optimizer that was built before the wrapping updates the model"
TRAINS_DETAIL = (
    "Without `use_orig_params=True` FSDP1 replaces the parameters that this optimizer holds, and its "
    "steps change nothing. Do not compare with a run of FSDP1."
)


def move(migration: Migration) -> None:
    """Move each such optimizer, and what is built from it, behind the last wrapping.

    A blocker for each that cannot move.
    """
    for (source, node), pairs in _early_optimizers(migration).items():
        if migration.is_blocked(node):
            continue
        place = _place(pairs)
        if place is None or not _move(migration, place):
            migration.blockers.append(Blocked(source, node, OPTIMIZER_FIRST()))
            continue
        migration.step(source, node, TITLE)
        if not all(_keeps_parameters(wrapped) for _, wrapped in pairs):
            migration.note(TRAINS, source, node, detail=TRAINS_DETAIL, unsafe=True)


Pairs = list[tuple[OptimizerBuilt, Wrapped]]


def _early_optimizers(migration: Migration) -> dict[tuple[Source, cst.CSTNode], Pairs]:
    """The optimizers, each with the wrappings of their models that come later."""
    found: dict[tuple[Source, cst.CSTNode], Pairs] = {}
    for trace in migration.program.traces:
        for wrapped in trace.of(Wrapped):
            for built in trace.before(wrapped, OptimizerBuilt):
                site = built.site
                if not isinstance(site, NodeSite):
                    continue
                if any(trace.related(module, wrapped.inner) for module in built.modules):
                    found.setdefault((site.source, site.node), []).append((built, wrapped))
    return found


def _place(pairs: Pairs) -> Meeting | None:
    """The block of an optimizer and its wrappings, with the last of these; None if it differs."""
    last: Meeting | None = None
    for built, wrapped in pairs:
        place = common_block(built, wrapped)
        if place is None or (last is not None and place.first is not last.first):
            return None
        body = list(place.block.body)
        if last is None or body.index(place.second) > body.index(last.second):
            last = place
    return last


def _move(migration: Migration, place: Meeting) -> bool:
    """Move the optimizer, unless the rewrite changes a statement that has to move."""
    moved = moved_with(migration.program, place)
    if any(migration.is_changed(place.source, statement) for statement in moved):
        return False
    return move_after(migration.rewrite, migration.program, place)


def _keeps_parameters(wrapped: Wrapped) -> bool:
    return wrapped.options.get("use_orig_params") is True

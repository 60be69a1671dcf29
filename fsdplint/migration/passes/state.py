"""What the passes of a migration share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.constructor import (
    enabled,
)
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.state_dicts import (
    optim_state,
    set_types,
)
from fsdplint.migration.training import (
    summon,
)
from fsdplint.source.source import Source


@dataclass
class PassState:
    """The migration, and results of earlier passes that later passes need.

    Attributes:
        blocks: the `enable_wrap` blocks that `collect_enable_wrap` found.
        summons: the blocks of `summon_full_params` that `collect_summons` found.
        types: the calls of `set_state_dict_type`.
        states: the rewriter of the state dicts of each file.
    """

    migration: Migration
    blocks: list[enabled.EnableWrapBlock] = field(default_factory=list)
    summons: list[summon.Summon] = field(default_factory=list)
    types: set_types.SetTypes = field(init=False)
    states: dict[Source, optim_state.States] = field(init=False)

    def __post_init__(self) -> None:
        self.types = set_types.SetTypes(self.migration)
        sources = self.migration.sources
        self.states = {one: optim_state.States(self.migration, one) for one in sources}
        for states in self.states.values():
            states.files = self.states
            states.types = self.types


def references(migration: Migration) -> Iterator[tuple[Source, cst.CSTNode, str]]:
    """The references to FSDP1 that no pass has accounted for so far."""
    for source in migration.sources:
        for node in nodes(source):
            if node in migration.names and node not in migration.consumed:
                yield source, node, migration.names[node]

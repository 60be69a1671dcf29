"""States of models that code out of sight wraps: a framework, or a file that is not given.

Torch's getters and setters take FSDP1's models as they do FSDP2's, with the same names, values and ranks
(those of a compiled model have their names from before `torch.compile`). So states may be rewritten
whichever of the two wraps the model; nothing else may.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.program.source import Source
from fsdplint.rules.migration.context import Blocked, Migration, nodes
from fsdplint.rules.migration.names import FSDP
from fsdplint.rules.migration.scopes import ancestors
from fsdplint.rules.migration.states.kinds import CONFIGS, OLD_OPTIMIZER_LOAD

BLOCK = f"{FSDP}.state_dict_type"
OPTIMIZER = f"{FSDP}.optim_state_dict"
STATES = (
    BLOCK,
    *(f"StateDictType.{name}" for name in CONFIGS),
    *(config for pair in CONFIGS.values() for config in pair),
)
NOTE = "the model is wrapped out of sight: its states are right with FSDP1 and with FSDP2"
REASON = "the code that wraps the model is not given, which decides what becomes of `{name}`"
ADVICE = (
    "Name the file that wraps the model as well. Where a framework does it (Accelerate, Transformers' "
    "Trainer), set it to FSDP2 and write this for FSDP2's models by hand."
)
DETAIL = (
    "Which of the two it is says the code that wraps the model (Accelerate: `fsdp_version`). The names "
    "in the state of a model that `torch.compile` has compiled are those from before it."
)


def check(migration: Migration) -> None:
    """Block what depends on who wraps the model; say that the states do not."""
    states: list[tuple[Source, cst.CSTNode]] = []
    others: list[Blocked] = []
    for source in migration.sources:
        for node in nodes(source):
            name = migration.fsdp1(node)
            if name in (BLOCK, OPTIMIZER) and _in_block(migration, source, node):
                states.append((source, node))
            elif name and name not in STATES:
                others.append(_blocked(source, node, name))
            elif migration.symbol(node) == OLD_OPTIMIZER_LOAD:
                # What takes its place was only tried on FSDP2's states.
                others.append(_blocked(source, node, OLD_OPTIMIZER_LOAD.rpartition(".")[2]))
    if not states and not others and not migration.shared:
        others = [_blocked(s, n, s.code(n)) for s in migration.sources for n in _calls(s)][:1]
    migration.blockers += others
    for source, node in states:
        migration.note(NOTE, source, node, detail=DETAIL)


def _blocked(source: Source, node: cst.CSTNode, name: str) -> Blocked:
    return Blocked(source, node, REASON.format(name=name.removeprefix(f"{FSDP}.")), advice=ADVICE)


def _calls(source: Source) -> Iterator[cst.Call]:
    return (node for node in nodes(source) if isinstance(node, cst.Call))


def _in_block(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    return any(
        migration.called(item.item) == BLOCK
        for parent in ancestors(source, node)
        if isinstance(parent, cst.With)
        for item in parent.items
    )

"""`state_dict_type` blocks around `Trainer.save_model` of Transformers, which takes the state by
itself.

Since 4.36, `save_model` asks `Accelerator.get_state_dict` for the state, which gathers it on rank 0
in a block of its own (FSDP1) or with `get_model_state_dict` (FSDP2). A block around it decides
nothing.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import definitions, function_of
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import STATE_IN_CALLED_CODE, TRAINER_SAVES
from fsdplint.migration.context import Migration
from fsdplint.migration.frameworks.versions import version_obstacle
from fsdplint.migration.state_dicts.harmless import takes_no_state
from fsdplint.migration.state_dicts.kinds import Kind
from fsdplint.source.source import Source

SINCE = "4.36"
TRAINERS = ("transformers.Trainer", "transformers.trainer.Trainer")
TITLE = "Leave out a state_dict_type without effect"
MODELS = ("model", "model_wrapped")
NOTE = f"`Trainer.save_model` takes the whole state by itself (Transformers {SINCE} and later)"
DETAIL = (
    "It does so where the `state_dict_type` of Accelerate is FULL_STATE_DICT; with another one it saves no "
    "model, with or without the block that is left out here."
)


def self_saving_calls(
    migration: Migration, source: Source, block: cst.With, model: str, kind: Kind
) -> list[cst.Call]:
    """The calls in a block that take the state of its model by themselves, in a way that is known.

    Raises:
        Blocked: they do so only in newer releases than the project allows.
    """
    trainer, _, attribute = model.rpartition(".")
    if attribute not in MODELS or not kind.full:
        return []
    calls = [
        node
        for node in source.descend(block.body)
        if isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value == "save_model"
        and isinstance(node.func.value, cst.Name)
        and node.func.value.value == trainer
        and _is_trainer(migration, source, node.func.value)
    ]
    if not calls or _defines_its_own(migration):
        return []
    obstacle = version_obstacle("transformers", SINCE, source.path)
    if obstacle is not None:
        reason = TRAINER_SAVES(since=SINCE)
        raise Blocked(source, calls[0], reason)
    return calls


def check(migration: Migration, source: Source, block: cst.With, known: list[cst.Call]) -> None:
    """Accept a block of calls that take the state by themselves, or are rewritten.

    Raises:
        Blocked: other calls of the block may take it, too.
    """
    for node in source.descend(block.body):
        if isinstance(node, cst.Call) and node not in known and not takes_no_state(migration, node):
            reason = STATE_IN_CALLED_CODE()
            raise Blocked(source, node, reason)
    migration.note(NOTE, source, known[-1], detail=DETAIL)


def _is_trainer(migration: Migration, source: Source, name: cst.Name) -> bool:
    """Whether a variable holds a Trainer: by its annotation as a parameter, or by its
    definition.
    """
    function = function_of(source, name)
    if isinstance(function, cst.FunctionDef):
        given = function.params
        for parameter in (*given.posonly_params, *given.params, *given.kwonly_params):
            if parameter.name.value == name.value:
                annotation = parameter.annotation
                return annotation is not None and _is_class(migration, annotation.annotation)
    found = definitions(source, name) or []
    return bool(found) and all(
        isinstance(one.value, cst.Call) and _is_class(migration, one.value.func) for one in found
    )


def _is_class(migration: Migration, node: cst.BaseExpression) -> bool:
    return migration.symbol(node) in TRAINERS


def _defines_its_own(migration: Migration) -> bool:
    """Whether some class here may save in another way."""
    return any(
        isinstance(node, cst.FunctionDef)
        and node.name.value in ("save_model", "_save")
        and isinstance(source.parent(source.parent(node) or node), cst.ClassDef)
        for source in migration.program.sources.values()
        for node in source.descend(source.tree)
    )

"""`state_dict_type` blocks around `Trainer.save_model` of Transformers, which takes the state itself.

Since 4.36, `save_model` calls `Accelerator.get_state_dict`, which gathers the state on rank 0 in its
own block (FSDP1) or with `get_model_state_dict` (FSDP2). A block around it has no effect.
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
TITLE = "Remove a state_dict_type without effect"
MODELS = ("model", "model_wrapped")
NOTE = f"`Trainer.save_model` takes the full state itself (Transformers {SINCE} and later)"
DETAIL = (
    "It does so if the `state_dict_type` of Accelerate is FULL_STATE_DICT. With another type it saves no "
    "model, with or without the block that is removed here."
)


def self_saving_calls(
    migration: Migration, source: Source, block: cst.With, model: str, kind: Kind
) -> list[cst.Call]:
    """The calls of `Trainer.save_model` in a block, which take the state of the model themselves.

    Raises:
        Blocked: the project allows releases of Transformers that do not do so.
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
    """Check that a block has only calls that take the state themselves or are rewritten.

    Raises:
        Blocked: other calls of the block may take the state.
    """
    for node in source.descend(block.body):
        if isinstance(node, cst.Call) and node not in known and not takes_no_state(migration, node):
            reason = STATE_IN_CALLED_CODE()
            raise Blocked(source, node, reason)
    migration.note(NOTE, source, known[-1], detail=DETAIL)


def _is_trainer(migration: Migration, source: Source, name: cst.Name) -> bool:
    """Whether a variable is a Trainer, by its annotation as a parameter or by its definition."""
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
    """Whether a class of the program overrides how a model is saved."""
    return any(
        isinstance(node, cst.FunctionDef)
        and node.name.value in ("save_model", "_save")
        and isinstance(source.parent(source.parent(node) or node), cst.ClassDef)
        for source in migration.program.sources.values()
        for node in source.descend(source.tree)
    )

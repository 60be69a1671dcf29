"""`state_dict_type` blocks around library methods that take the state by themselves.

`Accelerator.get_state_dict` gathers the state on rank 0 in a block of its own (FSDP1) or with
`get_model_state_dict` (FSDP2). `Trainer.save_model` of Transformers calls it since 4.36. A block around
them has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import STATE_IN_CALLED_CODE, TRAINER_SAVES
from fsdplint.migration.context import Migration
from fsdplint.migration.frameworks.versions import version_obstacle
from fsdplint.migration.state_dicts.calls_without_state import takes_no_state
from fsdplint.migration.state_dicts.kinds import Kind
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import function_around

SINCE = "4.36"
TRAINERS = ("transformers.Trainer", "transformers.trainer.Trainer")
ACCELERATORS = ("accelerate.Accelerator", "accelerate.accelerator.Accelerator")
TITLE = "Remove a state_dict_type without effect"
MODELS = ("model", "model_wrapped")
NOTE = f"`Trainer.save_model` takes the full state itself (Transformers {SINCE} and later)"
ACCELERATOR_NOTE = "`Accelerator.get_state_dict` takes the full state itself, on rank 0"
DETAIL = (
    "It does so if the `state_dict_type` of Accelerate is FULL_STATE_DICT. With another type it saves no "
    "model, with or without the block that is removed here."
)


def self_taking_calls(
    migration: Migration, source: Source, block: cst.With, model: str, kind: Kind
) -> list[cst.Call]:
    """The calls in a block that take the state of the model in a way of their own.

    Raises:
        Blocked: the project allows releases of Transformers that do not do so.
    """
    return [
        *_accelerator_calls(migration, source, block, model),
        *_trainer_calls(migration, source, block, model, kind),
    ]


def _accelerator_calls(
    migration: Migration, source: Source, block: cst.With, model: str
) -> list[cst.Call]:
    """The calls `accelerator.get_state_dict(model)`."""
    calls = []
    for node, owner in _method_calls(source, block, "get_state_dict"):
        given = node.args[0].value if node.args else None
        if given is None or source.code(given) != model:
            continue
        if _is_instance(migration, source, owner, ACCELERATORS):
            calls.append(node)
            migration.note(ACCELERATOR_NOTE, source, node)
    return calls


def _trainer_calls(
    migration: Migration, source: Source, block: cst.With, model: str, kind: Kind
) -> list[cst.Call]:
    """The calls of `Trainer.save_model`."""
    trainer, _, attribute = model.rpartition(".")
    if attribute not in MODELS or not kind.full:
        return []
    calls = [
        node
        for node, owner in _method_calls(source, block, "save_model")
        if source.code(owner) == trainer and _is_instance(migration, source, owner, TRAINERS)
    ]
    if not calls or _defines_its_own(migration):
        return []
    obstacle = version_obstacle("transformers", SINCE, source.path)
    if obstacle is not None:
        reason = TRAINER_SAVES(since=SINCE)
        raise Blocked(source, calls[0], reason)
    return calls


def _method_calls(
    source: Source, block: cst.With, method: str
) -> Iterator[tuple[cst.Call, cst.Name]]:
    """The calls of a method in a block, with the variable that has it."""
    for node in source.descend(block.body):
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if node.func.attr.value == method and isinstance(node.func.value, cst.Name):
                yield node, node.func.value


def check(migration: Migration, source: Source, block: cst.With, known: list[cst.Call]) -> None:
    """Check that a block has only calls that take the state themselves or are rewritten.

    Raises:
        Blocked: other calls of the block may take the state.
    """
    for node in source.descend(block.body):
        if isinstance(node, cst.Call) and node not in known and not takes_no_state(migration, node):
            reason = STATE_IN_CALLED_CODE()
            raise Blocked(source, node, reason)
    trainers = [node for node, _ in _method_calls(source, block, "save_model") if node in known]
    if trainers:
        migration.note(NOTE, source, trainers[-1], detail=DETAIL)


def _is_instance(
    migration: Migration, source: Source, name: cst.Name, classes: tuple[str, ...]
) -> bool:
    """Whether a variable is an object of some classes, by its annotation or by its definition."""
    function = function_around(source, name)
    if isinstance(function, cst.FunctionDef):
        given = function.params
        for parameter in (*given.posonly_params, *given.params, *given.kwonly_params):
            if parameter.name.value == name.value:
                annotation = parameter.annotation
                return annotation is not None and migration.symbol(annotation.annotation) in classes
    found = definitions(source, name) or []
    return bool(found) and all(
        isinstance(one.value, cst.Call) and migration.symbol(one.value.func) in classes
        for one in found
    )


def _defines_its_own(migration: Migration) -> bool:
    """Whether a class of the program overrides how a model is saved."""
    return any(
        isinstance(node, cst.FunctionDef)
        and node.name.value in ("save_model", "_save")
        and isinstance(source.parent(source.parent(node) or node), cst.ClassDef)
        for source in migration.program.sources.values()
        for node in source.descend(source.tree)
    )

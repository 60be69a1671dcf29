"""States of models that unseen code wraps: a framework, or a file that is not given.

Torch's getters and setters accept models of FSDP1 and FSDP2, with the same names, values and ranks.
(The names for a compiled model are those from before `torch.compile`.) So states can be rewritten
whichever of the two wraps the model; other uses cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.analysis.variables import is_mentioned, outer_function
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.program import (
    CONSTANT_WITHOUT_MODEL,
    NOT_IMPORTED,
    PREPARED_WITH_OTHERS,
    WRAPPED_BY_SUBCLASS,
    WRAPPED_ELSEWHERE,
    WRAPPING_FUNCTION_NOT_CALLED,
)
from fsdplint.migration.constructor import unread_values
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.frameworks.prepared_models import ONE_PREPARE, obstacles
from fsdplint.migration.names import FSDP
from fsdplint.migration.state_dicts.kinds import CONFIGS, OLD_OPTIMIZER_LOAD
from fsdplint.migration.training.classes import is_truth_of_import, tested_model, tests_import
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.enclosing import ancestors, annotation_around
from fsdplint.trace import Wrapped

BLOCK = f"{FSDP}.state_dict_type"
OPTIMIZER = f"{FSDP}.optim_state_dict"
STATES = (
    BLOCK,
    *(f"StateDictType.{name}" for name in CONFIGS),
    *(config for pair in CONFIGS.values() for config in pair),
)
NOTE = "other code wraps the model: its states are right with FSDP1 and with FSDP2"
CONFIGURED = ("ShardingStrategy", "BackwardPrefetch", "MixedPrecision", "CPUOffload")
ENUMS = ("ShardingStrategy", "BackwardPrefetch", "StateDictType")
UNWRAPPED = "no given file wraps a model with FSDP1 for this test of its class, which is False"
UNWRAPPED_DETAIL = (
    "With `FSDPModule` it is True of the models of FSDP2. If code outside of the project wraps the model, "
    "change that code too."
)
FRAMEWORKS = (  # the words of files in which a framework wraps a model
    (b"accelerate", b"Accelerator"),
    (b"transformers", b"TrainingArguments"),
    (b"import transformers", b"Trainer("),
    (b"from trl", b"Trainer"),
    (b"lightning", b"Trainer("),
    (b"lightning", b"Fabric("),
)
DETAIL = (
    "The code that wraps the model decides which of the two it is (Accelerate: `fsdp_version`). The names "
    "in the state of a compiled model are those from before `torch.compile`."
)


def constructors(migration: Migration) -> list[tuple[Source, cst.Call]]:
    """The calls that wrap a model, including `partial(FSDP, ...)`, `wrap` and undecided calls."""
    return [
        (source, node)
        for source in migration.sources
        for node in nodes(source)
        if isinstance(node, cst.Call) and _wraps(migration, node)
    ]


def _wraps(migration: Migration, call: cst.Call) -> bool:
    """Whether a call is FSDP(...), partial(FSDP, ...), or the `wrap(...)` of an `enable_wrap`
    block.
    """
    if migration.symbol(call.func) == "functools.partial":
        return bool(call.args) and migration.any_name(call.args[0].value) == FSDP
    return migration.any_name(call.func) in (FSDP, "wrap")


def check(migration: Migration) -> None:
    """Block on uses that depend on which code wraps the model; add a note on states."""
    states: list[tuple[Source, cst.CSTNode]] = []
    others: list[Blocked] = []
    kinds: list[Blocked] = []  # types and configs of states, which have no effect by themselves
    has_rewrite = False  # whether there is a use that no code that wraps a model can affect
    for source in migration.sources:
        for node in nodes(source):
            name = migration.fsdp1(node) if node not in migration.unread else ""
            if name in (BLOCK, OPTIMIZER) and _in_block(migration, source, node):
                states.append((source, node))
            elif name == FSDP and _has_rewrite(migration, source, node):
                has_rewrite = True
            elif name:
                (kinds if name in STATES else others).append(
                    wrapped_elsewhere(migration, source, node, name)
                )
            elif migration.symbol(node) == OLD_OPTIMIZER_LOAD:
                # Its replacement was only tested on FSDP2's states.
                name = OLD_OPTIMIZER_LOAD.rpartition(".")[2]
                others.append(wrapped_elsewhere(migration, source, node, name))
    if (
        not states
        and not others
        and not migration.policies.shared
        and not (has_rewrite and not kinds)
    ):
        others = kinds or _through_other_names(migration) or _rewrite_blockers(migration)
    migration.blockers += others
    for source, node in states:
        migration.note(NOTE, source, node, detail=DETAIL)


def wrapped_elsewhere(
    migration: Migration, source: Source, node: cst.CSTNode, name: str
) -> Blocked:
    """The blocker of a use that depends on unknown code that wraps the model."""
    name = name.removeprefix(f"{FSDP}.")
    for other, call, why in _prepared_with_others(migration, source):
        at = other.location(call)
        place = f"{Path(at.path).name}:{at.line}"
        return Blocked(source, node, PREPARED_WITH_OTHERS(name=name, why=why, place=place))
    subclass = next(_subclasses(migration), None)
    if subclass is not None:
        at = subclass[0].location(subclass[1])
        place = f"{Path(at.path).name}:{at.line}"
        return Blocked(source, node, WRAPPED_BY_SUBCLASS(name=name, place=place))
    function = outer_function(source, node)
    if isinstance(function, cst.FunctionDef) and name.partition(".")[0] in CONFIGURED:
        if not is_mentioned(migration.program.sources.values(), function):
            reason = WRAPPING_FUNCTION_NOT_CALLED(function=function.name.value, name=name)
            return Blocked(source, node, reason)
    if function is None and name.partition(".")[0] in ENUMS:
        return Blocked(source, node, CONSTANT_WITHOUT_MODEL(name=name))
    return Blocked(source, node, WRAPPED_ELSEWHERE(name=name))


def _subclasses(migration: Migration) -> Iterator[tuple[Source, cst.ClassDef]]:
    """The classes that derive from FSDP1's."""
    for source in migration.sources:
        for node in nodes(source):
            if isinstance(node, cst.ClassDef) and any(
                migration.any_name(base.value) == FSDP for base in node.bases
            ):
                yield source, node


def _prepared_with_others(
    migration: Migration, source: Source
) -> Iterator[tuple[Source, cst.CSTNode, str]]:
    """Calls that pass Accelerate a model together with objects that FSDP2 does not allow."""
    program = full_program(migration.program)
    return (found for found in obstacles(program, source) if found[2] == ONE_PREPARE)


def _has_rewrite(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    """Whether a use of the class is an annotation, or a test with the same result before and after."""
    if annotation_around(source, node) or _asks_plain_model(migration, source, node):
        return True
    if tests_import(source, node) or is_truth_of_import(source, node):
        return True
    if tested_model(source, node) is None or not _nothing_wraps(migration, source):
        return False
    migration.note(UNWRAPPED, source, node, detail=UNWRAPPED_DETAIL, unsafe=True)
    return True


def _nothing_wraps(migration: Migration, source: Source) -> bool:
    """Whether no file that may call a file wraps a model, and no framework of the project does."""
    program, path = full_program(migration.program), Path(source.path)
    read = {program.projects.real(Path(one.path)) for one in program.sources.values()}
    if any(program.projects.real(one) not in read for one in program.projects.importers([path])):
        return False
    return not any(program.projects.containing(path, words) for words in FRAMEWORKS)


def _asks_plain_model(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    """Whether `isinstance(model, FSDP)` tests a known model that nothing wraps."""
    model = tested_model(source, node)
    values = migration.values(model) if model is not None else []
    return bool(values) and all(
        isinstance(value, ModuleValue) and not value.wrapper and value.synthetic_for is None
        for value in values
    )


def _through_other_names(migration: Migration) -> list[Blocked]:
    """The blockers of calls that wrap a model through a name not imported from torch."""
    sites = {
        event.site.node: event.site.source
        for trace in migration.program.traces
        for event in trace.of(Wrapped)
        if isinstance(event.site, NodeSite) and event.site.source in migration.sources
    }
    return [Blocked(s, n, NOT_IMPORTED()) for n, s in sites.items()]


def _rewrite_blockers(migration: Migration) -> list[Blocked]:
    """The blocker of the first use that would be rewritten."""
    steps = [step for step in migration.steps if step.title != unread_values.TITLE]
    return [
        wrapped_elsewhere(migration, step.source, step.node, step.source.code(step.node))
        for step in steps[:1]
    ]


def _in_block(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    return any(
        migration.called_name(item.item) == BLOCK
        for parent in ancestors(source, node)
        if isinstance(parent, cst.With)
        for item in parent.items
    )

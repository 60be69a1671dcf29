"""Helper functions for states and checkpoints that the migration adds to files."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration.analysis.variables import function_name, top_level
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import FSDP, PARAMETERS
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.trace import Saved, StateLoaded, StateTaken

WHOLE = (
    "torch.distributed.group.WORLD",
    "torch.distributed.GroupMember.WORLD",
    "torch.distributed._get_default_group",
)


def gather_helper(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """The name of a helper that gathers a state on the first rank of each group, as FSDP1 does."""
    name = function_name(source, "gather_state_dict")
    top = top_level(source, at)
    if not migration.add_helper(f"gather {source.path}"):
        return name
    sharded = migration.need(source, "torch.distributed.tensor", "DTensor", top)
    _insert_function(
        migration,
        source,
        top,
        [
            f"def {name}(model):",
            '\t"""Gather a model\'s whole state on the CPU of the first rank that shares it."""',
            "\tstate = {}",
            "\tfor name, value in model.state_dict().items():",
            f"\t\tif isinstance(value, {sharded}):",
            "\t\t\tfirst = value.device_mesh.get_coordinate()[-1] == 0",
            "\t\t\tvalue = value.full_tensor()",
            "\t\t\tif not first:",
            "\t\t\t\tcontinue",
            "\t\tstate[name] = value.cpu()",
            "\treturn state",
        ],
    )
    return name


def steps_helper(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """The name of a helper that makes a checkpoint of FSDP1's flat parameters loadable.

    In such a checkpoint all parameters of a unit share one `step` tensor, which each would increment.
    """
    name = function_name(source, "separate_steps")
    if not migration.add_helper(f"steps {source.path}"):
        return name
    state, step = string_literal(source, "state"), string_literal(source, "step")
    _insert_function(
        migration,
        source,
        top_level(source, at),
        [
            f"def {name}(state):",
            '\t"""Give each parameter a step of its own: in FSDP1\'s checkpoints, a unit shares one."""',
            f"\tfor values in state.get({state}, {{}}).values():",
            f"\t\tif {step} in values:",
            f"\t\t\tvalues[{step}] = values[{step}].clone()",
            "\treturn state",
        ],
    )
    return name


def _insert_function(
    migration: Migration, source: Source, top: cst.CSTNode, lines: list[str]
) -> None:
    """Insert a function after the last definition before a statement, or before the statement."""
    statements = list(source.tree.body)
    before = [
        statement
        for statement in statements[: statements.index(top)]  # type: ignore[arg-type]
        if isinstance(statement, cst.FunctionDef | cst.ClassDef)
    ]
    if before:
        migration.rewrite.insert_after(source, before[-1], ["", "", *lines])
    else:
        migration.rewrite.insert_function(source, top, lines)


def write_once(
    migration: Migration, source: Source, top: cst.CSTNode, name: str, lines: list[str]
) -> str:
    """Add a function to a file if the migration has not added it yet. Returns its name."""
    own = function_name(source, name)
    if migration.add_helper(f"function {name} {source.path}"):
        lines = [line.replace(f"def {name}(", f"def {own}(") for line in lines]
        _insert_function(migration, source, top, lines)
    return own


def may_have_flat_parameters(migration: Migration) -> bool:
    """Whether a model may have been wrapped without `use_orig_params=True`."""
    return any(
        given is None or not is_constant(given.value, "True")
        for given in _constructor_arguments(migration, "use_orig_params")
    )


def may_shard_in_groups(migration: Migration) -> bool:
    """Whether a model may be sharded over some of the ranks.

    FSDP1 gathers its state on the first rank of the group, torch's getter on rank 0.
    """
    return any(
        given is not None and not _is_world(migration, given.value)
        for given in _constructor_arguments(migration, "process_group")
    )


def _is_world(migration: Migration, node: cst.BaseExpression) -> bool:
    if is_constant(node, "None"):
        return True
    return migration.symbol(node.func if isinstance(node, cst.Call) else node) in WHOLE


def _constructor_arguments(migration: Migration, name: str) -> Iterator[cst.Arg | None]:
    """An argument of every call of the constructor."""
    for source in migration.sources:
        for node in nodes(source):
            if isinstance(node, cst.Call) and migration.fsdp1(node.func) == FSDP:
                yield arguments(node, PARAMETERS)[0].get(name)


def is_saved_by_one_rank(migration: Migration, node: cst.Call) -> bool:
    """Whether the program only saves the state that a call takes, on one rank."""
    seen = False
    for trace in migration.program.traces:
        taken = {
            event.state
            for event in trace.of(StateTaken)
            if isinstance(event.site, NodeSite) and event.site.node is node
        }
        if any(event.state in taken for event in trace.of(StateLoaded)):
            return False
        for event in trace.of(Saved):
            if taken & set(event.states):
                seen = True
                if not event.ranks.partial:
                    return False
    return seen

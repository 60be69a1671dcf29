"""The constructor: `FSDP(model, ...)` becomes `fully_shard` of its blocks and then of itself."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.variables import fresh
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import (
    CAST_INPUTS_DIFFER,
    GATHERED_PARAMETERS_SET,
    IGNORED_WITH_PARAM_INIT_FN,
    MODULE_UNKNOWN,
    MODULE_WITHOUT_FORWARD,
)
from fsdplint.migration.blockers.policies import WRAP_OUTSIDE_BLOCK
from fsdplint.migration.constructor import casts, gathered_roots, meta
from fsdplint.migration.constructor.constructed_units import ConstructedUnits
from fsdplint.migration.constructor.constructor_arguments import read_keywords
from fsdplint.migration.constructor.empty_units import leave_out_empty
from fsdplint.migration.constructor.ignored_units import leaves_out
from fsdplint.migration.constructor.keywords import Keywords, as_value, is_simple
from fsdplint.migration.constructor.policy import Policy
from fsdplint.migration.constructor.policy_comments import move_comments
from fsdplint.migration.constructor.strategy import literal
from fsdplint.migration.constructor.wrap_statement import WrapStatement
from fsdplint.migration.context import Migration
from fsdplint.migration.facts import Precision
from fsdplint.migration.names import PARAMETERS
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments

TITLE = "Shard the model with fully_shard"
# Arguments that leave no text if `fully_shard` gets none of these keywords for them.
DEFAULTS = {
    "sharding_strategy": ("mesh", "reshard_after_forward"),
    "cpu_offload": ("offload_policy",),
}


def rewrite_wrap(
    migration: Migration, source: Source, node: cst.Call, precision: Precision
) -> None:
    """Rewrite one call of the constructor.

    Raises:
        Blocked: an argument, or the place of the call, has no rewrite.
    """
    named, rest = arguments(node, PARAMETERS)
    rewrite_call(migration, source, node, named, rest, precision)


def rewrite_call(
    migration: Migration,
    source: Source,
    node: cst.Call,
    named: dict[str, cst.Arg],
    rest: list[cst.Arg],
    precision: Precision,
    shared: list[str] | None = None,
    units: ConstructedUnits | None = None,
) -> None:
    """Rewrite a call that wraps a module, whose arguments may stand elsewhere.

    named: the arguments by the names of their parameters.
    rest: arguments without a name, such as `**kwargs`.
    shared: lines before several such calls; gets the lines that do not depend on the module.
    units: the units that FSDP1 wrapped while the module was built.

    Raises:
        Blocked: as in `rewrite_wrap`.
    """
    module = named.get("module")
    if module is None:
        raise Blocked(source, node, MODULE_UNKNOWN())
    if migration.called_name(node) == "wrap" and _is_container(migration, module.value):
        raise Blocked(source, node, MODULE_WITHOUT_FORWARD())
    keywords = read_keywords(migration, source, node, named, rest, precision)
    if units is not None:
        if keywords.policy is not None or keywords.materialize or keywords.initialize:
            raise Blocked(source, node, WRAP_OUTSIDE_BLOCK())
        keywords.policy = Policy(classes=None, units=units.tree, parts=units.modules)
    policy = keywords.policy
    if keywords.has_ignored and (keywords.materialize or keywords.initialize):
        raise Blocked(source, node, IGNORED_WITH_PARAM_INIT_FN())
    meta.initialize_if_meta(migration, source, node, named, rest, keywords)
    meta.note_empty(migration, source, node, keywords)
    if shared is not None:
        _share(source, node, keywords, shared)
    shard = migration.need(source, "torch.distributed.fsdp", "fully_shard", node)
    statement = WrapStatement(migration, source, node, module.value, keywords, shard)
    inner_casts = _inner_casts(migration, source, node, module.value, keywords, precision)
    if not keywords.spread and not keywords.setup:
        names = {name for name, _ in keywords.items}
        statement.removed_arguments |= {
            x for x, texts in DEFAULTS.items() if not names.intersection(texts)
        }
    chosen = named.get("sharding_strategy")
    if chosen is not None and literal(migration, chosen.value) == "FULL_SHARD":
        statement.removed_arguments.add("sharding_strategy")
    _shard_again(migration, source, node, keywords)
    keywords.norms = keywords.norms and "mp_policy" in dict(keywords.items)
    if not keywords.norms or keywords.norms_fit():
        if not rest:
            migration.norms_apart.add(node)
    keywords.leaves_out = leaves_out(migration, keywords, precision, inner_casts)
    leave_out_empty(migration, keywords, precision, inner_casts, module.value)
    keywords.prepare(policy is not None, inner_casts)
    migration.account_for(source, node.func)
    for arg in node.args:
        if arg is not module:
            migration.account_for(source, arg.value)
    statement.rewrite()
    _delete_policy(migration, policy)
    if policy is not None:
        move_comments(migration, policy, source, node)
    migration.step(source, node, TITLE)


def _shard_again(migration: Migration, source: Source, node: cst.Call, keywords: Keywords) -> None:
    """Shard the model again after forwards without a backward, if the program sets its parameters."""
    calls = gathered_roots.calls_before_sets(migration, node)
    if not calls:
        return
    gathered_roots.note_order(migration, source, node)
    if not keywords.may_stay_gathered():
        keywords.reshards_root = True
    elif not gathered_roots.reshard_after(migration, calls):
        raise Blocked(source, node, GATHERED_PARAMETERS_SET())


def _inner_casts(
    migration: Migration,
    source: Source,
    node: cst.Call,
    module: cst.BaseExpression,
    keywords: Keywords,
    precision: Precision,
) -> bool:
    """Whether the inner modules may use the policy of mixed precision of the root."""
    keywords.own_casts = precision.own_casts
    has_units = keywords.policy is not None and keywords.policy.units is not None
    keywords.holds_parts = not has_units and casts.holds_parts(migration, node)
    is_part = casts.wraps_parts(migration, node) if keywords.policy is None else set()
    keywords.is_part = True in is_part
    if not keywords.is_part:
        return casts.fits_policy(migration, precision, keywords.policy, module)
    fits = casts.fits_part(migration, precision, module)
    if False in is_part and not fits and "mp_policy" in dict(keywords.items):
        raise Blocked(source, node, CAST_INPUTS_DIFFER())
    return fits


def _delete_policy(migration: Migration, policy: Policy | None) -> None:
    """Delete the variables of a policy that is now a test in the loop."""
    for source, definition in policy.variables if policy is not None else ():
        migration.delete_statement(source, definition.statement, comments=False)
        migration.step(
            source, definition.statement, "Test for the policy's modules where the model is sharded"
        )


def _share(source: Source, node: cst.Call, keywords: Keywords, shared: list[str]) -> None:
    """Move the lines before a call, and its mesh, to the lines that several calls share."""
    shared += [line for line in keywords.setup if line not in shared]
    keywords.setup = []
    items = dict(keywords.items)
    mesh = items.get("mesh", "")
    if not mesh or is_simple(mesh):
        return
    names = (line.partition(" = ") for line in shared)
    items["mesh"] = next((name for name, _, value in names if value == mesh), "")
    if not items["mesh"]:
        items["mesh"] = fresh(source, node, "mesh", "device_mesh")
        shared.append(f"{items['mesh']} = {as_value(mesh)}")
    keywords.items = list(items.items())


def _is_container(migration: Migration, module: cst.BaseExpression) -> bool:
    """Whether a module may be a container without a forward."""
    modules = {value.id for value in migration.values(module) if isinstance(value, ModuleValue)}
    return any(
        trace.modules[module_id].container
        for trace in migration.program.traces
        for module_id in modules & set(trace.modules)
    )

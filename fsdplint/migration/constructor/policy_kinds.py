"""What kind of policy an expression makes: a test of a module, one by size, or a function."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import Function
from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import CUSTOM_POLICY_SHARED, POLICY_UNSUPPORTED
from fsdplint.migration.context import Migration
from fsdplint.migration.names import fsdp1_name
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import elements

SIZE_POLICY = "size_based_auto_wrap_policy"
# What FSDP1 gives each policy, and the parameters of the policies.
GIVEN = ("module", "recurse", "nonwrapped_numel")
POLICY_PARAMETERS = {
    "transformer_auto_wrap_policy": (*GIVEN, "transformer_layer_cls"),
    "lambda_auto_wrap_policy": (*GIVEN, "lambda_fn"),
    SIZE_POLICY: (*GIVEN, "min_num_params", "force_leaf_modules", "exclude_wrap_modules"),
}


def makes_policy(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether an expression makes a policy of FSDP1."""
    if node in migration.policies.read_elsewhere:
        return True
    if migration.called_name(node) in ("ModuleWrapPolicy", "CustomPolicy"):
        return True
    if migration.fsdp1(node) in ("always_wrap_policy", SIZE_POLICY):
        return True
    return (
        isinstance(node, cst.Call)
        and migration.symbol(node.func) == "functools.partial"
        and bool(node.args)
        and migration.fsdp1(node.args[0].value).endswith("_policy")
    )


def kind(migration: Migration, site: NodeSite) -> str:
    """The kind of a policy: "test" of a module, "size", or "function" of three parameters.

    Raises:
        Blocked: FSDP2 has no form for it.
    """
    node = site.node
    if node in migration.policies.read_elsewhere:
        return _kind_of_unchanged(migration, site)
    if isinstance(node, cst.FunctionDef | cst.Lambda):
        p = node.params
        if len(p.params) >= 3 or isinstance(p.star_arg, cst.Param) or p.star_kwarg is not None:
            return "function"
        raise Blocked(site.source, node, POLICY_UNSUPPORTED())
    if isinstance(node, cst.Call) and node.args:
        first = node.args[0].value
        if first in migration.policies.shared:
            return "function"
        if migration.fsdp1(first) == SIZE_POLICY or combines_size(migration, site):
            return "size"
        partial = migration.symbol(node.func) == "functools.partial"
        values = migration.values(first)
        if partial and values and all(isinstance(v, Function) for v in values):
            return "function"
    return "size" if migration.fsdp1(node) == SIZE_POLICY else "test"


def _kind_of_unchanged(migration: Migration, site: NodeSite) -> str:
    """A policy that stays as it is gets FSDP1's three parameters; a CustomPolicy takes others."""
    node = site.node
    if isinstance(node, cst.Call) and fsdp1_name(migration.symbol(node.func)) == "CustomPolicy":
        source, use = migration.policies.read_elsewhere[node]
        line = source.location(use).line
        raise Blocked(site.source, node, CUSTOM_POLICY_SHARED(line=line))
    return "function"


def combined_policies(migration: Migration, node: cst.CSTNode) -> cst.BaseExpression | None:
    """The list of policies that `partial(_or_policy, policies=...)` combines."""
    if not isinstance(node, cst.Call) or migration.symbol(node.func) != "functools.partial":
        return None
    if len(node.args) != 2 or migration.fsdp1(node.args[0].value) != "_or_policy":
        return None
    keyword = node.args[1].keyword
    return node.args[1].value if keyword is not None and keyword.value == "policies" else None


def combines_size(migration: Migration, site: NodeSite) -> bool:
    """Whether a policy combines others, of which one shards by size."""
    combined = combined_policies(migration, site.node)
    if combined is None:
        return False
    parts = elements(_only_value(site.source, combined)) or ()
    return any(makes_size(migration, _only_value(site.source, part)) for part in parts)


def makes_size(migration: Migration, node: cst.CSTNode) -> bool:
    """Whether an expression makes a policy by size."""
    if migration.fsdp1(node) == SIZE_POLICY:
        return True
    return (
        isinstance(node, cst.Call)
        and migration.symbol(node.func) == "functools.partial"
        and bool(node.args)
        and migration.fsdp1(node.args[0].value) == SIZE_POLICY
    )


def _only_value(source: Source, node: cst.BaseExpression) -> cst.BaseExpression:
    """The value of a variable that is assigned once; any other expression itself."""
    found = definitions(source, node) if isinstance(node, cst.Name) else None
    return found[0].value if found and len(found) == 1 else node

"""Policies by size: a helper counts parameters as FSDP1 does."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.tied_weights import may_share
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import POLICY_ARGUMENT_UNSUPPORTED, POLICY_ARGUMENTS
from fsdplint.migration.constructor.local_functions import size_helper
from fsdplint.migration.constructor.policy_kinds import SIZE_POLICY
from fsdplint.migration.constructor.policy_scope import PolicyScope
from fsdplint.syntax.arguments import arguments, elements
from fsdplint.syntax.layout import descend

TIED = "modules that share a weight stay in a unit around both, and go on sharing it"
TIED_DETAIL = (
    "FSDP1 may put them into different units. Then it trains two separate weights, or with "
    "`use_orig_params=True` the forward fails."
)
OPTIONS = ("min_num_params", "force_leaf_modules", "exclude_wrap_modules")


def read_size(
    scope: PolicyScope,
    node: cst.BaseExpression,
    *,
    initializes: bool = False,
    ignores: bool = False,
    norms: bool = False,
    tests: bool = False,
) -> bool:
    """Have a helper shard by size if the code here makes such a policy; whether it does.

    tests: whether the helper also shards the modules that pass a test.

    initializes: whether the helper also initializes the modules. ignores: whether some parameters
    are not sharded. norms: whether batch norms are sharded before.

    Raises:
        Blocked: an argument of the policy has no rewrite.
    """
    migration = scope.migration
    value = scope.value_of(node)
    options: dict[str, cst.Arg] = {}
    if migration.fsdp1(value) != SIZE_POLICY:
        if not (
            isinstance(value, cst.Call)
            and migration.symbol(value.func) == "functools.partial"
            and value.args
            and migration.fsdp1(value.args[0].value) == SIZE_POLICY
        ):
            return False
        options, rest = arguments(value, ("function", "", "", *OPTIONS))
        options.pop("function", None)
        if rest or not set(options) <= set(OPTIONS):
            raise Blocked(scope.source, value, POLICY_ARGUMENTS())
    if value is not node:
        scope.drop_variable(node)
    migration.account_for(scope.source, value)
    size = scope.text(options["min_num_params"].value) if "min_num_params" in options else ""
    leaves = _classes(scope, options.get("force_leaf_modules"))
    excluded = _classes(scope, options.get("exclude_wrap_modules"))
    ties = not tests and may_share(migration.program, scope.at)
    helper = size_helper(
        *(migration, scope.source, scope.at, leaves, excluded),
        initializes=initializes,
        ignores=ignores,
        norms=norms,
        tests=tests,
        ties=ties,
    )
    if ties:
        migration.policies.keep_ties.add(scope.at)
        migration.note(TIED, scope.source, scope.at, detail=TIED_DETAIL, unsafe=True)
    scope.policy.initializes, scope.policy.ignores = initializes, ignores
    scope.policy.counts_units = norms
    scope.policy.helper = f"{helper}({{model}}, {size or 'int(1e8)'}"
    scope.policy.classes = None
    return True


def _classes(scope: PolicyScope, arg: cst.Arg | None) -> str | None:
    """The text of a set of classes, for `isinstance`."""
    if arg is None:
        return None
    if any(part in scope.migration.names for part in descend(arg.value)):
        raise Blocked(scope.source, arg, POLICY_ARGUMENT_UNSUPPORTED())
    parts = elements(arg.value)
    if parts is None:
        return f"tuple({scope.text(arg.value)})"
    if len(parts) == 1:
        return scope.source.code(parts[0])
    return "(" + ", ".join(scope.source.code(part) for part in parts) + ")"

"""Modules without parameters that a policy picks.

FSDP1 does nothing with such a unit. FSDP2 has nothing to shard there either, but it casts the inputs.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.constructor import casts
from fsdplint.migration.constructor.ignored_units import is_of_classes
from fsdplint.migration.constructor.keywords import Keywords
from fsdplint.migration.constructor.policy import Policy
from fsdplint.migration.context import Migration
from fsdplint.migration.facts import Precision


def leave_out_empty(
    migration: Migration,
    keywords: Keywords,
    precision: Precision,
    inner_casts: bool,
    module: cst.BaseExpression,
) -> None:
    """Make the loop over a model's modules test for parameters, if that changes what is cast.

    inner_casts: whether the submodules get the policy of the root, which casts their inputs.
    """
    policy = keywords.policy
    if policy is None or policy.units is not None or not policy.test or policy.gives_arguments:
        return
    if not precision.lowers or not (inner_casts or keywords.own_casts):
        return
    parts = casts.parts_of(migration, module)
    if policy.test == policy.every_test:
        if parts is None or any(_may_be_empty(migration, part) for part in parts):
            policy.test = f"list({policy.variable}.parameters(recurse=False))"
    elif any(_is_empty_unit(migration, policy, part) for part in parts or ()):
        policy.test += f" and list({policy.variable}.parameters())"


def _may_be_empty(migration: Migration, part: ModuleValue) -> bool:
    """Whether a module may have no parameters beside those of its submodules."""
    return any(
        trace.modules[part.id].own_parameters is not True
        for trace in migration.program.traces
        if part.id in trace.modules
    )


def _is_empty_unit(migration: Migration, policy: Policy, part: ModuleValue) -> bool:
    """Whether a policy may pick a module that certainly has no parameters."""
    if policy.classes is not None and not is_of_classes(migration, part, policy.classes):
        return False
    return any(
        all(trace.modules[one].own_parameters is False for one in trace.submodules(part.id))
        for trace in migration.program.traces
        if part.id in trace.modules
    )

"""Ignored modules that a policy picks: FSDP1 wraps neither them nor the modules below them.

A unit that only holds ignored parameters has nothing to shard, but FSDP2 casts its inputs.
"""

from __future__ import annotations

from fsdplint.interpreter.values import Class, ModuleValue
from fsdplint.interpreter.values import Sequence as Items
from fsdplint.migration.constructor.casts import modules_below
from fsdplint.migration.constructor.keywords import Keywords
from fsdplint.migration.constructor.policy import Policy
from fsdplint.migration.context import Migration
from fsdplint.migration.facts import Precision


def leaves_out(
    migration: Migration, keywords: Keywords, precision: Precision, inner_casts: bool
) -> bool:
    """Whether the loop over a model's modules has to test for ignored ones.

    inner_casts: whether the submodules get the policy of the root, which casts their inputs.
    """
    policy = keywords.policy
    if policy is None or policy.units is not None or not keywords.ignored_modules:
        return False
    if not precision.lowers or not (inner_casts or keywords.own_casts):
        return False
    return _may_pick(migration, policy, keywords)


def _may_pick(migration: Migration, policy: Policy, keywords: Keywords) -> bool:
    """Whether a policy may pick an ignored module, or a module below one."""
    if policy.classes is None:
        return True
    ignored: list[ModuleValue] = []
    for value in keywords.ignored_values:
        items = value.items if isinstance(value, Items) else [value]
        if not all(isinstance(item, ModuleValue) for item in items):
            return True
        ignored += [item for item in items if isinstance(item, ModuleValue)]
    parts = modules_below(migration, ignored)
    if parts is None or not ignored:
        return True
    names = {migration.symbol(node) for node in policy.classes}
    classes = [v for node in policy.classes for v in migration.values(node) if isinstance(v, Class)]
    return any(
        (part.library_class or "") in names
        or (part.cls is not None and any(klass in part.cls.mro() for klass in classes))
        for part in parts
    )

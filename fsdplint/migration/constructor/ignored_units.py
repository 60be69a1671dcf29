"""Ignored modules, and modules whose parameters are all ignored, that a policy picks.

FSDP1 does not wrap ignored modules and the modules below them. It wraps a module whose parameters are
all ignored, but does nothing with it. FSDP2 casts the inputs of such a unit.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.interpreter.torch_values import ParametersOf
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
    if policy is None or policy.units is not None or not keywords.has_ignored:
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
        for item in value.items if isinstance(value, Items) else [value]:
            if isinstance(item, ParametersOf):
                ignored += item.modules
            elif isinstance(item, ModuleValue):
                ignored.append(item)
            else:
                return True
    parts = modules_below(migration, ignored)
    if parts is None or not ignored:
        return True
    return any(is_of_classes(migration, part, policy.classes) for part in parts)


def is_of_classes(
    migration: Migration, module: ModuleValue, nodes: Sequence[cst.BaseExpression]
) -> bool:
    """Whether a module has one of the classes that some expressions name."""
    if (module.library_class or "") in {migration.symbol(node) for node in nodes}:
        return True
    classes = [v for node in nodes for v in migration.values(node) if isinstance(v, Class)]
    return module.cls is not None and any(klass in module.cls.mro() for klass in classes)

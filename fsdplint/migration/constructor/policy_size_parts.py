"""`_or_policy` with a policy by size among tests of modules.

FSDP1 looks into every module, because each test does, and shards one that is large enough or passes a
test. The helper that counts parameters gets the tests.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import CUSTOM_POLICY_UNSEEN
from fsdplint.migration.constructor.policy_kinds import combined_policies, makes_size
from fsdplint.migration.constructor.policy_scope import PolicyScope
from fsdplint.migration.constructor.policy_sizes import read_size
from fsdplint.migration.constructor.policy_tests import PolicyTests
from fsdplint.syntax.arguments import elements


def read_size_and_tests(scope: PolicyScope, tests: PolicyTests, node: cst.BaseExpression) -> bool:
    """Have a helper shard by size and by tests if the code here combines such policies.

    Returns:
        Whether it does.

    Raises:
        Blocked: one of the policies has no rewrite.
    """
    value = scope.value_of(node)
    combined = combined_policies(scope.migration, value)
    parts = elements(scope.value_of(combined)) if combined is not None else None
    sizes = [part for part in parts or () if makes_size(scope.migration, scope.value_of(part))]
    if combined is None or parts is None or len(sizes) != 1 or len(parts) == 1:
        return False
    texts = []
    for part in parts:
        if part is sizes[0]:
            continue
        test = tests.part_test(part, "module")
        if test is None:
            return False
        if scope.policy.unit or scope.policy.gives_arguments:
            raise Blocked(scope.source, part, CUSTOM_POLICY_UNSEEN())
        texts.append(test)
    if not read_size(scope, sizes[0], tests=True):
        return False
    for variable, definition in ((node, value), (combined, scope.value_of(combined))):
        if definition is not variable:
            scope.drop_variable(variable)
    scope.migration.account_for(scope.source, value)
    scope.policy.root, scope.policy.members, scope.policy.every_test = False, "", ""
    test = " or ".join(texts)
    scope.policy.helper += f", test=lambda module: {test}"
    return True

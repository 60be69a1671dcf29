"""`auto_wrap_policy`: the submodules that FSDP1 wraps, as a loop over the modules.

A policy becomes a test of a module (`isinstance(module, Block)`). If the policy is written in the
same function, the loop gets the test. A policy that is made elsewhere becomes a function of the
module in its place. Policies by size, and functions with FSDP1's three parameters, keep FSDP1's
order and count by a small local function.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.fixes.syntax import library_name
from fsdplint.migration.analysis.variables import definitions, fresh
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import (
    CUSTOM_POLICY_UNSEEN,
    POLICIES_WITH_FUNCTION,
    POLICY_MAY_BE_OTHER,
    POLICY_UNBOUND,
    POLICY_UNSEEN,
    POLICY_UNSUPPORTED,
)
from fsdplint.migration.constructor import written_policy
from fsdplint.migration.constructor.called_policies import called_policy
from fsdplint.migration.constructor.local_functions import policy_helper
from fsdplint.migration.constructor.policy import Policy
from fsdplint.migration.constructor.policy_flow import Flow
from fsdplint.migration.constructor.policy_kinds import kind, makes_policy
from fsdplint.migration.constructor.policy_scope import PolicyScope
from fsdplint.migration.constructor.policy_size_parts import read_size_and_tests
from fsdplint.migration.constructor.policy_sizes import read_size
from fsdplint.migration.constructor.policy_sources import PolicySources
from fsdplint.migration.constructor.policy_tests import PolicyTests
from fsdplint.migration.context import Migration
from fsdplint.migration.names import fsdp1_name
from fsdplint.migration.text import is_repeatable, on_one_line
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import elements, is_constant
from fsdplint.syntax.layout import descend, statement_of

# The arguments that policies need besides those that FSDP1 gives them.
UNBOUND = {
    "transformer_auto_wrap_policy": "transformer_layer_cls",
    "lambda_auto_wrap_policy": "lambda_fn",
}
CLASS_POLICIES = ("ModuleWrapPolicy", "transformer_auto_wrap_policy", "_module_wrap_policy")


class PolicyReader:
    """Reads one policy into `policy`."""

    def __init__(
        self,
        migration: Migration,
        source: Source,
        at: cst.CSTNode,
        *,
        initializes: bool = False,
        ignores: bool = False,
        norms: bool = False,
    ) -> None:
        """Read a policy for a place.

        initializes: whether the modules get values before they are sharded.
        ignores: whether some parameters are not sharded.
        norms: whether batch norms are sharded before.
        """
        self.migration = migration
        self.options = {"initializes": initializes, "ignores": ignores}
        self.norms = norms
        self.source = source
        self.at = at
        self.scope = PolicyScope(migration, source, at)
        self.policy = self.scope.policy
        self.sources = PolicySources(migration, source)
        self.tests = PolicyTests(self.scope, self._rewrite_tests)

    def read(self, node: cst.BaseExpression) -> Policy | None:
        """The policy of an argument, None if the argument is None.

        Raises:
            Blocked: it has no rewrite.
        """
        if is_constant(node, "None"):
            return None
        if isinstance(node, cst.IfExp) and is_constant(node.orelse, "None"):
            self.policy.guard = self.scope.text(node.test)
            node = node.body
        elif isinstance(node, cst.IfExp) and is_constant(node.body, "None"):
            self.policy.guard = f"not ({self.scope.text(node.test)})"
            node = node.orelse
        if self._repeat_unchanged(node):
            return self.policy
        if self._is_shared_variable(node):
            self._call_rewritten(node)
            return self.policy
        if read_size(self.scope, node, **self.options, norms=self.norms):
            return self.policy
        plain = not self.norms and not any(self.options.values())
        if plain and read_size_and_tests(self.scope, self.tests, node):
            return self.policy
        test = self.tests.test(node, self.policy.variable)
        if test is not None:
            self.policy.test = test
            return self.policy
        self._call_rewritten(node)
        return self.policy

    def _is_shared_variable(self, node: cst.BaseExpression) -> bool:
        """Whether a policy is a variable of these files that is read in several places."""
        definition = self.scope.definition(node)
        if definition is None or not isinstance(node, cst.Name) or self.scope.is_only_read(node):
            return False
        return makes_policy(self.migration, definition.value)

    def _repeat_unchanged(self, node: cst.BaseExpression) -> bool:
        """Test for the classes of a policy that stays as it is for other readers.

        Returns False if its classes are not written out.
        """
        policy = self.scope.value_of(node)
        if policy not in self.migration.policies.read_elsewhere or not isinstance(policy, cst.Call):
            return False
        named = {arg.keyword.value: arg.value for arg in policy.args if arg.keyword is not None}
        name = fsdp1_name(self.migration.symbol(policy.func)) or fsdp1_name(
            self.migration.symbol(policy.args[0].value)
        )
        classes = named.get("transformer_layer_cls") or named.get("module_classes")
        if name == "ModuleWrapPolicy" and classes is None and len(policy.args) == 1:
            classes = policy.args[0].value
        if name not in CLASS_POLICIES or classes is None or isinstance(classes, cst.Name):
            return False
        parts = elements(classes)
        if not parts or not all(is_repeatable(x) and not self.tests.is_property(x) for x in parts):
            return False
        self.policy.test = self.tests.isinstance_test(classes, self.policy.variable)
        return True

    # Policies that are made elsewhere ------------------------------------------------------------

    def _call_rewritten(self, node: cst.BaseExpression) -> None:
        """Rewrite the policy where it is made into a function of a module, and call that."""
        name = self.migration.fsdp1(node)
        if name in UNBOUND:
            raise Blocked(self.source, node, POLICY_UNBOUND(name=name, argument=UNBOUND[name]))
        sites = self.sources.sites(node)
        called = called_policy(self.migration) if not sites else None
        if called is not None:
            raise called
        if sites is None:
            unseen = self.sources.find_unseen(node)
            raise Blocked(self.source, unseen, POLICY_UNSEEN(policy=self.source.code(unseen)))
        self._check_names(node, sites)
        kinds = {kind(self.migration, site) for site in sites} or {"function"}
        if "function" in kinds and len(kinds) > 1:
            raise Blocked(self.source, node, POLICIES_WITH_FUNCTION())
        if kinds != {"function"}:
            self._rewrite_sites(sites, sharder="size" in kinds, alone=len(sites) == 1)
            self._check_flow(node)
        name = self._name_of(node, "should_shard" if kinds == {"test"} else "wrap_policy")
        calls = [part for part in self._values(node) if part in self.migration.policies.calls]
        if calls and not all(self.migration.values(call) for call in calls):
            self.policy.root = True  # the class of the methods' object is unknown
        optional = kinds == {"function"} and self.sources.defaults_to_none(node)
        if not sites or optional or self.sources.may_be_none(node):
            self.policy.guard = f"{name} is not None"
        if kinds == {"function"}:
            helper = policy_helper(self.migration, self.source, self.at, **self.options)
            self.policy.initializes = self.options["initializes"]
            self.policy.ignores = self.options["ignores"]
            self.policy.helper = f"{helper}({{model}}, {name}"
            self.policy.classes = None
        elif "size" in kinds:
            self.policy.helper = f"{name}({{model}}"
        else:
            self.policy.test = f"{name}({self.policy.variable})"

    def _check_names(self, node: cst.BaseExpression, sites: Sequence[NodeSite]) -> None:
        """Block if an argument names FSDP1 outside of the policies that are rewritten."""
        inside = {part for site in sites for part in descend(site.node)}
        for part in descend(node):
            if part in self.migration.names and part not in inside:
                raise Blocked(self.source, part, POLICY_UNSUPPORTED())

    def _check_flow(self, node: cst.BaseExpression) -> None:
        """Block if code that cannot be seen may give the policy, too."""
        unseen = Flow(self.migration).find_unseen(self.source, node)
        if unseen is not None:
            source, place = unseen
            raise Blocked(
                self.source, node, POLICY_MAY_BE_OTHER(code=on_one_line(source.code(place)))
            )

    def _name_of(self, node: cst.BaseExpression, wanted: str) -> str:
        """The name of the policy; an expression gets a variable."""
        text = self.scope.text(node)
        if is_repeatable(node):
            return text
        name = fresh(self.source, self.at, wanted, "shard_policy")
        self.policy.setup.append(f"{name} = {text}")
        return name

    def _values(self, node: cst.BaseExpression) -> list[cst.BaseExpression]:
        """The values that a variable is assigned; any other node itself."""
        found = definitions(self.source, node) if isinstance(node, cst.Name) else None
        return [item.value for item in found] if found else [node]

    def _rewrite_tests(self, sites: Sequence[NodeSite]) -> None:
        self._rewrite_sites(sites, sharder=False, alone=False)

    def _rewrite_sites(self, sites: Sequence[NodeSite], *, sharder: bool, alone: bool) -> None:
        """Rewrite policies in their places.

        alone: whether there is one policy, whose test is that of the call.
        """
        for site in sites:
            assert isinstance(site.node, cst.BaseExpression)
            policy = convert(self.migration, site.source, site.node, sharder=sharder)
            if policy.gives_arguments and (sharder or not alone):
                raise Blocked(site.source, site.node, CUSTOM_POLICY_UNSEEN())
            if policy.unit and (sharder or len(sites) > 1):
                raise Blocked(site.source, site.node, CUSTOM_POLICY_UNSEEN())
            self.policy.unit, self.policy.gives_arguments = policy.unit, policy.gives_arguments
            self.policy.root = self.policy.root or policy.root
            if policy.classes is None:
                self.policy.classes = None
            elif self.tests.may_be_root(policy.classes):
                self.policy.root = True  # several models share the policy
            if policy.classes is not None and self.policy.classes is not None:
                self.policy.classes.extend(policy.classes)


def convert(
    migration: Migration, source: Source, node: cst.BaseExpression, *, sharder: bool
) -> Policy:
    """Rewrite a policy in its place into a function of a module, which returns True or False.

    sharder: into a function of a model instead, which shards the submodules.

    Raises:
        Blocked: it has no rewrite.
    """
    if node in migration.policies.rewritten:
        return migration.policies.rewritten[node]
    reader = PolicyReader(migration, source, node)
    policy = migration.policies.rewritten[node] = reader.policy
    policy.variable = "module"
    if sharder and (
        read_size(reader.scope, node) or read_size_and_tests(reader.scope, reader.tests, node)
    ):
        name, _, size = policy.helper.partition("({model}, ")
        partial = library_name(migration.rewrite, source, "functools.partial", node)
        migration.substitute(source, node, f"{partial}({name}, min_num_params={size})")
        _write_variables(migration, source, node, policy)
        return policy
    test = reader.tests.test(node, "module")
    if test is None:
        raise Blocked(source, node, POLICY_UNSUPPORTED())
    _write_variables(migration, source, node, policy)
    written_policy.write(migration, source, node, test, sharder=sharder)
    return policy


def _write_variables(
    migration: Migration, source: Source, node: cst.BaseExpression, policy: Policy
) -> None:
    """Write the variables that the new policy needs, and delete those that nothing reads any more."""
    if policy.setup:
        migration.rewrite.insert_before(source, statement_of(source, node), policy.setup)
    for other, definition in policy.variables:
        migration.delete_statement(other, definition.statement, comments=False)

"""The lines that shard the submodules which a wrapping policy picks."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.analysis.variables import fresh
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import IGNORED_WITH_SIZE_POLICY, PARAM_INIT_FN_WITH_POLICY
from fsdplint.migration.constructor import batch_norms
from fsdplint.migration.constructor.keywords import Keywords, unit_arguments
from fsdplint.migration.constructor.local_functions import initializing_helper
from fsdplint.migration.constructor.module_lists import members_of
from fsdplint.migration.constructor.policy import Policy
from fsdplint.migration.constructor.policy_comments import comments_above_loop, comments_in_policy
from fsdplint.migration.constructor.unit_tree import element_name
from fsdplint.migration.context import Migration
from fsdplint.migration.text import call, indented, without_parentheses
from fsdplint.source.source import Source
from fsdplint.syntax.layout import line_indent


@dataclass
class UnitLines:
    """Writes the lines that shard the units of one constructor call.

    Attributes:
        shard: the name of `fully_shard` in the file.
    """

    migration: Migration
    source: Source
    call: cst.Call
    keywords: Keywords
    shard: str

    def lines(self, model: str) -> list[str]:
        """The lines that shard the submodules that the policy picks."""
        policy = self.keywords.policy
        assert policy is not None
        comments = comments_above_loop(policy, self.source, self.call)
        if policy.units is not None:
            lines = policy.units.lines(self.source, self.call, model, self._unit_call)
            return [*comments, *lines]
        if policy.helper:
            loop = [*self._norm_loop(policy, model), self._helper_call(policy, model)]
        elif self.keywords.initialize:
            loop = [self._initializing_call(policy, model)]
        else:
            loop = self._shard_loop(policy, model)
        if policy.guard:
            loop = [f"if {policy.guard}:", *(indented(line) for line in loop)]
        return [*comments, *comments_in_policy(policy, self.source), *policy.setup, *loop]

    def _unit_call(self, module: str, depth: int) -> str:
        arguments = [module, *self.keywords.arguments(inner=True)]
        return call(self.source, self.call, self.shard, arguments, depth=depth)

    def _helper_call(self, policy: Policy, model: str) -> str:
        """The call of the helper of a policy by size or of three parameters."""
        if self.keywords.has_ignored and not policy.ignores:
            raise Blocked(self.source, self.call, IGNORED_WITH_SIZE_POLICY())
        if self.keywords.initialize and not policy.initializes:
            raise Blocked(self.source, self.call, PARAM_INIT_FN_WITH_POLICY())
        name, _, rest = policy.helper.partition("({model}")
        options = [rest.removeprefix(", ")] if rest else []
        if policy.initializes:
            options.append(self.keywords.initialize or "None")
        arguments = [model, *options, *self.keywords.arguments(inner=True)]
        return call(self.source, self.call, name, arguments)

    def _initializing_call(self, policy: Policy, model: str) -> str:
        """The call of the helper that initializes each module before it shards it."""
        test = f"lambda {policy.variable}: {without_parentheses(policy.test)}"
        if policy.test.endswith(f"({policy.variable})"):
            name = policy.test.removesuffix(f"({policy.variable})")
            test = name if name.isidentifier() else test
        own, norms = policy.gives_arguments, self.keywords.norms
        klass = self._norm_class() if norms else ""
        helper = initializing_helper(self.migration, self.source, self.call, own=own, norms=klass)
        keywords = self.keywords
        given = keywords.common_arguments() if own else keywords.arguments(inner=True)
        if norms:
            apart = f"dict({', '.join(keywords.norm_arguments())})"
            given = [
                f"{apart} if {keywords.norms_if} else None" if keywords.norms_if else apart,
                *given,
            ]
        return call(self.source, self.call, helper, [model, test, keywords.initialize, *given])

    def _shard_loop(self, policy: Policy, model: str) -> list[str]:
        modules = f"list({model}.modules())" + ("[1:]" if policy.root else "")
        arguments = [policy.variable, *self.keywords.arguments(inner=True)]
        depth = 2
        shard = call(self.source, self._place(policy), self.shard, arguments, depth=depth)
        before, ignored = self._ignored_modules(policy)
        norm = self._norm_call(policy, depth) if self.keywords.norms else ""
        guard = f"{self.keywords.norms_if} and " if self.keywords.norms_if else ""
        if policy.gives_arguments:
            own = unit_arguments(self.source, self.call)
            apart = [
                f"\tif {guard}isinstance({policy.variable}, {self._norm_class()}):",
                f"\t\t{norm}",
                "\t\tcontinue",
            ]
            return [
                *before,
                f"for {policy.variable} in reversed({modules}):",
                *(apart if norm else []),
                f"\t{own} = {policy.test}",
                f"\tif {ignored}{own} is not None:",
                f"\t\t{shard}",
            ]
        if norm:
            return [
                f"for {policy.variable} in reversed({modules}):",
                f"\tif {guard}isinstance({policy.variable}, {self._norm_class()}):",
                f"\t\t{norm}",
                f"\telif {without_parentheses(policy.test)}:",
                f"\t\t{shard}",
            ]
        if (
            policy.members
            and policy.test == f"{policy.variable} in {policy.members}"
            and not ignored
        ):
            return self._loop_over(policy, depth - 1)
        return [
            *before,
            f"for {policy.variable} in reversed({modules}):",
            f"\tif {ignored}{policy.test if ignored else without_parentheses(policy.test)}:",
            f"\t\t{shard}",
        ]

    def _loop_over(self, policy: Policy, depth: int) -> list[str]:
        """The lines that shard each module of a list."""
        variable = element_name(self.source, self.call, policy.members)
        arguments = [variable, *self.keywords.arguments(inner=True)]
        shard = call(self.source, self._place(policy), self.shard, arguments, depth=depth)
        return [f"for {variable} in {policy.members}:", "\t" + shard]

    def _norm_loop(self, policy: Policy, model: str) -> list[str]:
        """The lines that shard batch norms before a helper shards the other modules."""
        if not self.keywords.norms:
            return []
        guard = self.keywords.norms_if
        loop = [
            f"for {policy.variable} in {model}.modules():",
            f"\tif isinstance({policy.variable}, {self._norm_class()}):",
            f"\t\t{self._norm_call(policy, 2)}",
        ]
        return [f"if {guard}:", *(indented(line) for line in loop)] if guard else loop

    def _norm_class(self) -> str:
        return batch_norms.class_text(self.migration, self.source, self.call)

    def _norm_call(self, policy: Policy, depth: int) -> str:
        arguments = [policy.variable, *self.keywords.norm_arguments()]
        return call(self.source, self._place(policy), self.shard, arguments, depth=depth)

    def _place(self, policy: Policy) -> str:
        """The indentation of a loop over the modules, which may be in the block of a test."""
        indent = line_indent(self.source, self.source.span(self.call)[0])
        guarded = policy.guard or policy.helper and self.keywords.norms_if
        return indent + self.source.tree.default_indent if guarded else indent

    def _ignored_modules(self, policy: Policy) -> tuple[list[str], str]:
        """A line with what FSDP1 does not wrap, and the start of the loop's test."""
        if not self.keywords.leaves_out:
            return [], ""
        if not self.keywords.ignored_modules:
            name = fresh(self.source, self.call, "ignored_parameters", "not_sharded")
            line = f"{name} = {self.keywords.ignored_parameters}"
            return [line], f"not {name}.issuperset({policy.variable}.parameters()) and "
        name = fresh(self.source, self.call, "ignored_modules", "not_sharded")
        line = f"{name} = {members_of(self.keywords.ignored_modules, 'modules')}"
        return [line], f"{policy.variable} not in {name} and "

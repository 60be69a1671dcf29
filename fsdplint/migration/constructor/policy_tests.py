"""A policy that is written in the constructor's function, as a test of a module."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

from fsdplint.interpreter.values import Class, ModuleValue, Symbol
from fsdplint.migration.analysis.variables import (
    Definition,
    definition_at,
    definitions,
    fresh,
    home_of,
    reads,
    return_values,
)
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import CUSTOM_POLICY_UNSEEN, POLICY_ARGUMENT
from fsdplint.migration.constructor.custom_policies import CustomPolicies, test_of
from fsdplint.migration.constructor.joined_tests import joined
from fsdplint.migration.constructor.local_functions import containers
from fsdplint.migration.constructor.member_lists import list_of_units
from fsdplint.migration.constructor.policy_kinds import POLICY_PARAMETERS, kind, makes_policy
from fsdplint.migration.constructor.policy_methods import PolicyMethods
from fsdplint.migration.constructor.policy_scope import PolicyScope
from fsdplint.migration.constructor.receivers import methods
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, elements, is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.layout import descend

RewriteSites = Callable[[Sequence[NodeSite]], None]


class PolicyTests:
    """Writes tests of modules for the policies of one scope.

    Attributes:
        rewrite_sites: turns policies that are made elsewhere into functions of a module.
    """

    def __init__(self, scope: PolicyScope, rewrite_sites: RewriteSites) -> None:
        self.scope = scope
        self.migration = scope.migration
        self.source = scope.source
        self.policy = scope.policy
        self.rewrite_sites = rewrite_sites

    def test(self, node: cst.BaseExpression, variable: str) -> str | None:
        """A test of a variable that is true where the policy picks the module.

        Returns None if the policy is not written in this function.

        Raises:
            Blocked: the policy has no such test.
        """
        value = self.scope.value_of(node)
        text = self._test_of_value(value, variable)
        if text is not None:
            if value is not node:
                self.scope.drop_variable(node)
            self.migration.account_for(self.source, value)
        return text

    def isinstance_test(self, node: cst.BaseExpression, variable: str) -> str:
        """A test for the classes that an expression gives."""
        parts = elements(self.scope.value_of(node))
        if parts is not None and isinstance(node, cst.Name):
            local = home_of(self.source, node) is self.scope.function
            if local and self.scope.is_only_read(node):
                self.scope.drop_variable(node)
            else:
                parts = None
        if not parts:
            self.policy.classes = None
            return f"isinstance({variable}, {self._classes_text(node)})"
        return self._classes_test(parts, variable)

    def _classes_text(self, node: cst.BaseExpression) -> str:
        """The text of a tuple of classes, for an expression that does not list all of them."""
        if not isinstance(node, cst.Tuple | cst.List | cst.Set):
            return f"tuple({self.scope.text(node)})"
        stars = ["*" * isinstance(one, cst.StarredElement) for one in node.elements]
        texts = [self.scope.text(one.value) for one in node.elements]
        parts = [star + text for star, text in zip(stars, texts, strict=True)]
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"

    def _classes_test(self, parts: Sequence[cst.BaseExpression], variable: str) -> str:
        if self.policy.classes is not None:
            self.policy.classes.extend(parts)
        texts = [self._class_text(part) for part in parts]
        if self.may_be_root(parts):
            self.policy.root = True
        classes = texts[0] if len(texts) == 1 else "(" + ", ".join(texts) + ")"
        return f"isinstance({variable}, {classes})"

    def is_property(self, node: cst.BaseExpression) -> bool:
        """Whether a property computes a class, for instance from a module that sharding changes."""
        if not isinstance(node, cst.Attribute) or self.migration.symbol(node):
            return False
        found = methods(self.migration, node.attr.value)
        values = [value for _, function in found for value in return_values(function)]
        return any(not is_repeatable(value) for value in values)

    # The forms of a policy -----------------------------------------------------------------------

    def _test_of_value(self, node: cst.BaseExpression, variable: str) -> str | None:
        if self.migration.fsdp1(node) == "always_wrap_policy":
            self._may_pick_anything()
            classes = containers(self.migration, self.source, self.scope.at)
            self.policy.every_test = f"not isinstance({variable}, {classes})"
            return self.policy.every_test
        if isinstance(node, cst.Lambda):
            return self._recursing_test(node, variable)
        if not isinstance(node, cst.Call):
            return None
        name = self.migration.fsdp1(node.func)
        if name == "ModuleWrapPolicy":
            named, rest = arguments(node, ("module_classes",))
            if rest or "module_classes" not in named:
                return None
            return self.isinstance_test(named["module_classes"].value, variable)
        if name == "CustomPolicy":
            return self._custom_test(node, variable)
        if self.migration.symbol(node.func) == "functools.partial" and node.args:
            return self._partial_test(node, variable)
        return None

    def _recursing_test(self, node: cst.Lambda, variable: str) -> str | None:
        """The test of `lambda module, recurse, **rest: recurse or isinstance(module, Block)`."""
        p, body = node.params, node.body
        names = [one.name.value for one in (*p.params, *p.kwonly_params)]
        if not isinstance(body, cst.BooleanOperation) or not isinstance(body.operator, cst.Or):
            return None
        if not is_constant(body.left, "recurse") or not {"module", "recurse"} <= set(names):
            return None
        names += [
            one.name.value for one in (p.star_arg, p.star_kwarg) if isinstance(one, cst.Param)
        ]
        used = {part.value for part in descend(body.right) if isinstance(part, cst.Name)}
        if used & (set(names) - {"module"}):
            return None
        if isinstance(body.right, cst.Call) and is_constant(body.right.func, "isinstance"):
            first, *rest = [arg.value for arg in body.right.args]
            parts = elements(rest[0]) or rest[:1] if rest else []
            if is_constant(first, "module") and parts and all(map(self._is_known_class, parts)):
                return self._classes_test(parts, variable)
        self._may_pick_anything()
        text = _rename_variable(self.source, body.right, "module", variable)
        return f"({text})" if isinstance(body.right, cst.BooleanOperation | cst.IfExp) else text

    def _partial_test(self, node: cst.Call, variable: str) -> str | None:
        name = self.migration.fsdp1(node.args[0].value)
        named = {arg.keyword.value: arg for arg in node.args[1:] if arg.keyword is not None}
        if len(named) != len(node.args) - 1:
            return None
        for argument in sorted(set(named) - set(POLICY_PARAMETERS.get(name, named))):
            reason = POLICY_ARGUMENT(policy=name, argument=argument)
            raise Blocked(self.source, named[argument], reason)
        if name in ("transformer_auto_wrap_policy", "_module_wrap_policy"):
            key = "transformer_layer_cls" if name.startswith("t") else "module_classes"
            if set(named) == {key}:
                return self.isinstance_test(named[key].value, variable)
        if name == "lambda_auto_wrap_policy" and set(named) == {"lambda_fn"}:
            self._may_pick_anything()
            return self._predicate_test(named["lambda_fn"].value, variable)
        if name == "_or_policy" and set(named) == {"policies"}:
            return self._any_test(named["policies"].value, variable)
        return None

    def _may_pick_anything(self) -> None:
        self.policy.root, self.policy.classes = True, None

    def _custom_test(self, node: cst.Call, variable: str) -> str | None:
        function = CustomPolicies(self.scope).read(node)
        if function is None:
            return None
        self._may_pick_anything()
        return self._predicate_test(function, variable)

    def _predicate_test(self, node: cst.BaseExpression, variable: str) -> str:
        value = self.scope.value_of(node)
        if isinstance(value, cst.Lambda) and len(value.params.params) == 1:
            if value is not node:
                self.scope.drop_variable(node)
            parameter = value.params.params[0].name.value
            body = test_of(value.body)
            text = _rename_variable(self.source, body, parameter, variable)
            modules = list_of_units(self.migration, self.scope.at, body, parameter)
            if modules is not None:
                self.policy.members = self.source.code(modules)
            compound = isinstance(body, cst.BooleanOperation | cst.IfExp)
            return f"({text})" if compound else text
        return f"{self.scope.text(node)}({variable})"

    def _any_test(self, node: cst.BaseExpression, variable: str) -> str | None:
        """The test of `_or_policy`: any of its policies."""
        value = self.scope.value_of(node)
        parts = elements(value)
        function = self.scope.function
        if isinstance(node, cst.Name) and len(reads(self.source, function, node.value)) > 1:
            return self._list_test(node, variable)
        if parts is None:
            return None
        tests = []
        for part in parts:
            test = self.part_test(part, variable)
            if test is None:
                return None
            if self.policy.unit:
                raise Blocked(self.source, part, CUSTOM_POLICY_UNSEEN())
            tests.append(test)
        if value is not node:
            self.scope.drop_variable(node)
        return joined(tests, variable)

    def part_test(self, part: cst.BaseExpression, variable: str) -> str | None:
        """The test of one of the policies that `_or_policy` combines."""
        return (
            self._shared_test(part, variable)
            or self.test(part, variable)
            or self._method_test(part, variable)
            or self._branches_test(part, variable)
            or self._same_name_test(part, variable)
        )

    def _list_test(self, node: cst.Name, variable: str) -> str | None:
        """The test of a list that grows statement by statement: each policy becomes a test where
        it is made.
        """
        if home_of(self.source, node) is not self.scope.function:
            return None
        found = definitions(self.source, node)
        if not found:
            return None
        parts: list[cst.BaseExpression] = []
        for item in found:
            listed = elements(item.value)
            parts += [item.value] if listed is None else listed
        for use in reads(self.source, self.scope.function, node.value):
            if use is not node:
                added = _added_policies(self.source, use)
                if added is None:
                    return None
                parts += added
        policies = [self.scope.value_of(part) for part in parts]
        if not all(makes_policy(self.migration, policy) for policy in policies):
            return None
        self.rewrite_sites([NodeSite(self.source, policy) for policy in policies])
        self._may_pick_anything()
        element = fresh(self.source, self.scope.at, "policy", "matches")
        return f"any({element}({variable}) for {element} in {node.value})"

    def _shared_test(self, node: cst.BaseExpression, variable: str) -> str | None:
        """The test of a variable that other code reads, too: its policy becomes a function."""
        definition = self.scope.definition(node)
        if definition is None or not isinstance(node, cst.Name) or self.scope.is_only_read(node):
            return None
        policy = definition.value
        if policy in self.migration.policies.read_elsewhere:
            return None
        if not makes_policy(self.migration, policy):
            return None
        site = NodeSite(self.source, policy)
        if kind(self.migration, site) != "test":
            return None
        self.rewrite_sites([site])
        return f"{node.value}({variable})"

    def _method_test(self, node: cst.BaseExpression, variable: str) -> str | None:
        """The test of a policy that a method returns."""
        call = self.scope.value_of(node)
        if not isinstance(call, cst.Call):
            return None
        found = PolicyMethods(self.migration).read(self.source, call)
        if found is None or found.may_be_none:
            return None
        if {kind(self.migration, site) for site in found.sites} != {"test"}:
            return None
        self.rewrite_sites(found.sites)
        name = self.scope.text(node)
        if call is node:
            name = self.scope.hoist(name, "should_shard")
        return f"{name}({variable})"

    def _branches_test(self, node: cst.BaseExpression, variable: str) -> str | None:
        """The test of a variable that gets a policy in each of several branches."""
        if not isinstance(node, cst.Name) or not self.scope.is_only_read(node):
            return None
        found = definitions(self.source, node)
        if not found or home_of(self.source, node) is not self.scope.function:
            return None
        sites: list[NodeSite] = []
        for item in found:
            if makes_policy(self.migration, item.value):
                sites.append(NodeSite(self.source, item.value))
                continue
            if not isinstance(item.value, cst.Call):
                return None
            made = PolicyMethods(self.migration).read(self.source, item.value)
            if made is None or made.may_be_none:
                return None
            sites += made.sites
        if {kind(self.migration, site) for site in sites} != {"test"}:
            return None
        self.rewrite_sites(sites)
        return f"{node.value}({variable})"

    def _same_name_test(self, node: cst.BaseExpression, variable: str) -> str | None:
        """The test of `check = partial(lambda_auto_wrap_policy, lambda_fn=check)`: the function."""
        function = self.scope.function
        if not isinstance(node, cst.Name) or home_of(self.source, node) is not function:
            return None
        bindings = bindings_of(self.source)
        bound = bindings.scopes[function].others.get(node.value, [])
        found = [definition_at(self.source, target) for target in bound]
        made = next((item for item in found if item is not None), None)
        one_function = any(isinstance(self.source.parent(x), cst.FunctionDef) for x in bound)
        if len(bound) != 2 or made is None or not one_function or not self._is_called(made, node):
            return None
        if len(reads(self.source, function, node.value)) != 2:
            return None
        self._may_pick_anything()
        self.policy.variables.append((self.source, made))
        self.migration.account_for(self.source, made.value)
        return f"{node.value}({variable})"

    def _is_called(self, made: Definition, name: cst.Name) -> bool:
        """Whether a value is a policy that calls the function of a name with the module."""
        call = made.value
        if not isinstance(call, cst.Call) or len(call.args) != 2:
            return False
        if self.migration.symbol(call.func) != "functools.partial":
            return False
        policy, argument = call.args
        return (
            self.migration.fsdp1(policy.value) == "lambda_auto_wrap_policy"
            and argument.keyword is not None
            and argument.keyword.value == "lambda_fn"
            and is_constant(argument.value, name.value)
        )

    # Classes -------------------------------------------------------------------------------------

    def _class_text(self, node: cst.BaseExpression) -> str:
        text = self.scope.text(node)
        if is_repeatable(node) and not self.is_property(node):
            return text
        return self.scope.hoist(text)

    def _is_known_class(self, node: cst.BaseExpression) -> bool:
        values = self.migration.values(node)
        return bool(values) and all(isinstance(value, Class | Symbol) for value in values)

    def may_be_root(self, classes: Sequence[cst.BaseExpression]) -> bool:
        """Whether the root may be of one of these classes."""
        values = [v for node in classes for v in self.migration.values(node)]
        for root in self.migration.values(self.scope.at):
            if not isinstance(root, ModuleValue):
                continue
            inner = root.inner or root
            for klass in values:
                if isinstance(klass, Class) and inner.cls is not None:
                    # The classes of two runs are two values.
                    if any(one.node is klass.node for one in inner.cls.mro()):
                        return True
                if isinstance(klass, Symbol) and klass.name == inner.library_class:
                    return True
        return False


def _added_policies(source: Source, use: cst.Name) -> list[cst.BaseExpression] | None:
    """What `policies.append(...)` or `policies.extend(...)` adds to a list; None for other uses."""
    attribute = source.parent(use)
    if not isinstance(attribute, cst.Attribute) or attribute.value is not use:
        return None
    call = source.parent(attribute)
    if not isinstance(call, cst.Call) or call.func is not attribute or len(call.args) != 1:
        return None
    if attribute.attr.value == "append":
        return [call.args[0].value]
    return elements(call.args[0].value) if attribute.attr.value == "extend" else None


def _rename_variable(source: Source, node: cst.BaseExpression, old: str, new: str) -> str:
    """An expression's text with a variable under another name."""
    start, end = source.span(node)
    pieces = []
    position = start
    if old != new:
        for name in reads(source, node, old):
            name_start, name_end = source.span(name)
            pieces.append(source.text[position:name_start] + new)
            position = name_end
    pieces.append(source.text[position:end])
    return "".join(pieces)

"""Wrapping policies that other code reads besides FSDP1's constructors.

`apply_activation_checkpointing(model, auto_wrap_policy=policy)` calls a policy with three
arguments, as FSDP1 does. Such a policy stays as it is. The code that shards the model calls it as a
function of three parameters, or repeats its test.

A library's object may give a policy that nobody can read here, which is a function of three
parameters as well. Then all policies of the program stay, because they may be combined with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.analysis.class_hierarchy import class_around
from fsdplint.migration.analysis.value_uses import Use, Uses
from fsdplint.migration.analysis.variables import definitions, return_values
from fsdplint.migration.constructor import receivers
from fsdplint.migration.constructor.policy_kinds import makes_policy
from fsdplint.migration.constructor.policy_methods import called_method
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import FSDP, WRAPPING
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.layout import descend

ARGUMENT = "auto_wrap_policy"
# Calls that only show a value.
SHOW_CALLS = {"print", "str", "repr", "callable", "debug", "info", "warning", "error", "log"}
GROW_CALLS = {"append", "extend", "add", "insert", "update"}


def keep_unchanged(migration: Migration) -> None:
    """Keep the policies that code besides the constructors reads."""
    for source in migration.sources:
        for node in nodes(source):
            if isinstance(node, cst.BaseExpression) and makes_policy(migration, node):
                use = other_use(migration, source, node)
                if use is not None:
                    migration.policies.read_elsewhere[node] = use.source, use.node
    unseen = _unseen_giver(migration)
    if unseen is not None:
        migration.policies.all_stay = True
        for source in migration.sources:
            for node in nodes(source):
                if isinstance(node, cst.BaseExpression) and makes_policy(migration, node):
                    migration.policies.read_elsewhere.setdefault(node, unseen)
    for source in migration.sources:
        for policy in [node for node in nodes(source) if node in migration.policies.read_elsewhere]:
            for part in source.descend(policy):
                if part in migration.names:
                    _keep_reference(migration, source, part)


def _unseen_giver(migration: Migration) -> tuple[Source, cst.CSTNode] | None:
    """A call of a method that returns policies, on an object whose class cannot be seen."""
    names = {
        function.name.value
        for source in migration.sources
        for function in nodes(source)
        if isinstance(function, cst.FunctionDef) and class_around(source, function) is not None
        if _returns_policy(migration, source, function)
    }
    for source in migration.sources if names else ():
        for call in nodes(source):
            name = called_method(migration, call)
            if name not in names or not isinstance(call, cst.Call):
                continue
            assert isinstance(call.func, cst.Attribute)
            if not receivers.is_program_object(migration, source, call.func.value, name):
                return source, call
    return None


def _returns_policy(migration: Migration, source: Source, function: cst.FunctionDef) -> bool:
    """Whether a function returns a policy that is written in it."""
    values = return_values(function)
    for value in values[:]:
        if isinstance(value, cst.Name):
            values += [item.value for item in definitions(source, value) or ()]
    parts = [part for value in values for part in descend(value)]
    return any(isinstance(x, cst.BaseExpression) and makes_policy(migration, x) for x in parts)


def other_use(migration: Migration, source: Source, node: cst.CSTNode) -> Use | None:
    """The first use of a policy outside of FSDP1's constructor that may call it."""
    place = source.parent(node)
    call = source.parent(place) if isinstance(place, cst.Arg) else None
    if isinstance(call, cst.Call) and makes_policy(migration, call) and call.args[0] is place:
        return None  # the function of `partial(size_based_auto_wrap_policy, ...)`
    return next((use for use in PolicyUses(migration).of(source, node)), None)


class PolicyUses(Uses):
    """Follows a policy through lists of policies, `_or_policy`, and dicts of keywords."""

    def _step(self, source: Source, node: cst.CSTNode) -> Iterator[Use]:
        for use in super()._step(source, node):
            container = _container(self.migration, use)
            if container is not None:
                self._follow(use.source, container)
            elif not _is_harmless(self.migration, use):
                yield use

    def _follow_parameter(
        self, source: Source, node: cst.CSTNode, call: cst.Call, arg: cst.Arg
    ) -> bool:
        if super()._follow_parameter(source, node, call, arg):
            return True
        if not isinstance(node, cst.FunctionDef) or arg.keyword is None:
            return False
        rest = node.params.star_kwarg
        if rest is None:
            return False
        self._follow_variable(source, rest.name, node)
        return True


def _container(migration: Migration, use: Use) -> cst.CSTNode | None:
    """The container or `_or_policy` that a use puts a policy into, or the item that a use reads
    from a container.
    """
    place = use.place
    parent = use.source.parent(place) if place is not None else None
    if isinstance(place, cst.Element | cst.StarredElement):
        return parent
    if isinstance(place, cst.DictElement) and place.value is use.node:
        return parent if use.source.code(place.key).strip("'\"") != ARGUMENT else None
    if isinstance(place, cst.Subscript) and place.value is use.node:
        return place
    if isinstance(place, cst.Attribute) and place.attr.value in ("get", "pop", "setdefault"):
        return parent
    if isinstance(place, cst.Arg) and isinstance(parent, cst.Call) and parent.args[0] is not place:
        if migration.any_name(parent.args[0].value) == "_or_policy":
            return parent
    return None


def _keep_reference(migration: Migration, source: Source, node: cst.CSTNode) -> None:
    """Exclude a reference to a policy's function from the migration, and keep its import."""
    del migration.names[node]
    migration.policies.shared.add(node)
    text = dotted_name(node)
    for item in bindings_of(source).imports():
        if f"{text}.".startswith(f"{item.spelling}."):
            migration.policies.shared_names.add((source.path, item.spelling))


def _is_harmless(migration: Migration, use: Use) -> bool:
    """Whether a use wraps a model, puts the policy into a container, or only tests it for None."""
    place = use.place
    if isinstance(place, cst.Arg):
        call = use.source.parent(place)
        return isinstance(call, cst.Call) and _is_harmless_call(migration, use, place, call)
    if isinstance(place, cst.Comparison):
        sides = [place.left, *(item.comparator for item in place.comparisons)]
        return any(is_constant(side, "None") for side in sides)
    if isinstance(place, cst.ComparisonTarget):
        return True
    if isinstance(place, cst.Attribute) and place.attr.value in GROW_CALLS:
        return isinstance(use.source.parent(place), cst.Call)  # of a list of policies
    return not isinstance(place, cst.Call | cst.Attribute | cst.Subscript | cst.Yield)


def _is_harmless_call(migration: Migration, use: Use, arg: cst.Arg, call: cst.Call) -> bool:
    """Whether a call that gets a policy is rewritten for FSDP2, or does not call the policy."""
    wraps = migration.any_name(call.func)
    if wraps in WRAPPING or arg.star:
        return True
    symbol = migration.symbol(call.func)
    if symbol == "functools.partial":
        # A function that is called with a module only is no policy: a policy's variable may have
        # the name of its function.
        return migration.any_name(call.args[0].value) in (FSDP, "lambda_auto_wrap_policy")
    name = symbol or use.source.code(call.func)
    last = name.rpartition(".")[2]
    return last == "dict" or last in SHOW_CALLS or last in GROW_CALLS

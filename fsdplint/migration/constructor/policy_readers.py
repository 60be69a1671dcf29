"""Wrapping policies that other code reads besides FSDP1's constructors.

`apply_activation_checkpointing(model, auto_wrap_policy=policy)` calls a policy with three
arguments, as FSDP1 does. Such a policy stays as it is: where the model is sharded, it is called as
a function of three parameters, or what it says is written there once more.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.analysis.value_uses import Use, Uses
from fsdplint.migration.constructor.policy_methods import written
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import FSDP
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.dotted import dotted_name

ARGUMENT = "auto_wrap_policy"
WRAPPING = (FSDP, "enable_wrap", "wrap")
# Calls that only show a value.
SHOWING = {"print", "str", "repr", "callable", "debug", "info", "warning", "error", "log"}
GROWING = {"append", "extend", "add", "insert", "update"}


def keep(migration: Migration) -> None:
    """Leave the policies alone that code besides the constructors reads."""
    for source in migration.sources:
        for node in nodes(source):
            if isinstance(node, cst.BaseExpression) and written(migration, node):
                use = other_use(migration, source, node)
                if use is not None:
                    migration.policies.read_elsewhere[node] = use.source, use.node
    for source in migration.sources:
        for policy in [node for node in nodes(source) if node in migration.policies.read_elsewhere]:
            for part in source.descend(policy):
                if part in migration.names:
                    _leave(migration, source, part)


def other_use(migration: Migration, source: Source, node: cst.CSTNode) -> Use | None:
    """The first use of a policy that is not FSDP1's constructor, and may call it."""
    place = source.parent(node)
    call = source.parent(place) if isinstance(place, cst.Arg) else None
    if isinstance(call, cst.Call) and written(migration, call) and call.args[0] is place:
        return None  # the function of `partial(size_based_auto_wrap_policy, ...)`
    return next((use for use in PolicyUses(migration).of(source, node)), None)


class PolicyUses(Uses):
    """Follows a policy through lists of policies, and through those that are made of several."""

    def _step(self, source: Source, node: cst.CSTNode) -> Iterator[Use]:
        for use in super()._step(source, node):
            whole = _whole(self.migration, use)
            if whole is not None:
                self._follow(use.source, whole)
            elif not _is_expected(self.migration, use):
                yield use


def _whole(migration: Migration, use: Use) -> cst.CSTNode | None:
    """The container, or the policy made of several, that a use makes a policy a part of; what is
    taken out of a container again.
    """
    place = use.place
    whole = use.source.parent(place) if place is not None else None
    if isinstance(place, cst.Element | cst.StarredElement):
        return whole
    if isinstance(place, cst.DictElement) and place.value is use.node:
        return whole if use.source.code(place.key).strip("'\"") != ARGUMENT else None
    if isinstance(place, cst.Subscript) and place.value is use.node:
        return place
    if isinstance(place, cst.Attribute) and place.attr.value in ("get", "pop", "setdefault"):
        return whole
    if isinstance(place, cst.Arg) and isinstance(whole, cst.Call) and whole.args[0] is not place:
        if migration.fsdp1(whole.args[0].value) == "_or_policy":
            return whole
    return None


def _leave(migration: Migration, source: Source, node: cst.CSTNode) -> None:
    """Forget a reference to a policy's function, and keep its import."""
    del migration.names[node]
    migration.policies.shared.add(node)
    text = dotted_name(node)
    for item in bindings_of(source).imports():
        if f"{text}.".startswith(f"{item.spelling}."):
            migration.policies.shared_names.add((source.path, item.spelling))


def _is_expected(migration: Migration, use: Use) -> bool:
    """Whether a use wraps a model, hands the policy on in a container, or only asks if there is
    one.
    """
    place = use.place
    if isinstance(place, cst.Arg):
        call = use.source.parent(place)
        return isinstance(call, cst.Call) and _takes(migration, use, place, call)
    if isinstance(place, cst.Comparison):
        sides = [place.left, *(item.comparator for item in place.comparisons)]
        return any(is_constant(side, "None") for side in sides)
    if isinstance(place, cst.ComparisonTarget):
        return True
    if isinstance(place, cst.Attribute) and place.attr.value in GROWING:
        return isinstance(use.source.parent(place), cst.Call)  # of a list of policies
    return not isinstance(place, cst.Call | cst.Attribute | cst.Subscript | cst.Yield)


def _takes(migration: Migration, use: Use, arg: cst.Arg, call: cst.Call) -> bool:
    """Whether a call that is given a policy is one that becomes FSDP2's, or does nothing with
    it.
    """
    if migration.fsdp1(call.func) in WRAPPING or arg.star:
        return True
    symbol = migration.symbol(call.func)
    if symbol == "functools.partial":
        return migration.fsdp1(call.args[0].value) == FSDP
    name = symbol or use.source.code(call.func)
    last = name.rpartition(".")[2]
    return last == "dict" or last in SHOWING or last in GROWING

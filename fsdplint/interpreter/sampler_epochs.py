"""Samplers of the program whose shuffle has a seed with an attribute that a method sets.

Such a sampler has `set_epoch`, or a method of another name, for the number that makes the order of
each pass another one. While the attribute keeps its value, each pass has the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.method_names import attribute_name
from fsdplint.interpreter.own_parts import SEEDS, called_name, giving_methods, receiver_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Class,
    Const,
    Function,
    Instance,
    Method,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.source.positions import descend

_SHUFFLES = frozenset("choice permutation permuted randint randperm sample shuffle".split())
_OPERATIONS = (cst.BinaryOperation, cst.UnaryOperation, cst.Tuple, cst.List, cst.Element)
_LITERALS = (cst.Integer, cst.BaseString, cst.BaseNumber)


@dataclass(frozen=True)
class Epoch:
    """What decides the order of a pass.

    Attributes:
        name: the attribute that the seed contains.
        method: the method of the sampler that sets it; "" if code that was not executed yet may
            call it.
        value: its value in this pass.
    """

    name: str
    method: str
    value: int


def begin_order(run: Run, order: Value | None) -> None:
    """Forget that an earlier pass of another sampler has shuffled."""
    if isinstance(order, Instance):
        for call in _calls(order.cls):
            run.evaluations.pop(call.func, None)


def note_order(run: Run, order: Value | None) -> None:
    """Note whether the pass of a sampler that was executed has shuffled."""
    if isinstance(order, Instance):
        executed = [one for one in _calls(order.cls) if one.func in run.evaluations]
        if any(_function_name(run, one) in _SHUFFLES for one in executed):
            run.shuffling_samplers.add(order)


def epoch_of(run: Run, order: Value | None) -> Epoch | None:
    """The constant number that certainly decides the order of a pass; None if it is not known."""
    if not isinstance(order, Instance) or order not in run.shuffling_samplers:
        return None
    if order.attributes_unknown or order.cls.has_unknown_base() or order in run.shared_iterables:
        return None
    giving = giving_methods(order.cls)
    changed = {name for method in giving for name, _ in _assigned_attributes(method)}
    read = _read_by_seeds(run, order.cls, giving)
    if not read or read & changed:
        return None
    setters = _setters(order.cls, giving)
    epochs = sorted(read & set(setters))
    if len(epochs) != 1:
        return None
    (name,) = epochs
    value = run.settle(order.attributes[name]) if name in order.attributes else None
    if not isinstance(value, Const) or type(value.value) is not int:
        return None
    unseen = any(_may_be_set_out_of_sight(run, name, method) for method in setters[name])
    return Epoch(name, "" if unseen else setters[name][0], value.value)


def _calls(cls: Class) -> list[cst.Call]:
    """The calls in the methods that give the order."""
    nodes = (node for method in giving_methods(cls) for node in descend(method.body))
    return [node for node in nodes if isinstance(node, cst.Call)]


def _function_name(run: Run, call: cst.Call) -> str:
    """The name of the function that a call has called, or else that in the code."""
    function = run.evaluations.get(call.func)
    if isinstance(function, Symbol):
        return function.name.rpartition(".")[2]
    if isinstance(function, Method):
        return function.name
    name = attribute_name(function) if isinstance(function, Unknown) else ""
    return name or called_name(call)


def _read_by_seeds(run: Run, cls: Class, giving: list[cst.FunctionDef]) -> set[str]:
    """The attributes of which the seeds are computed; empty if they have anything else in them."""
    read: set[str] = set()
    for method in giving:
        for node in descend(method.body):
            if isinstance(node, cst.Call) and _function_name(run, node) in SEEDS:
                for arg in node.args:
                    names = _attributes_in(cls, method, arg.value, 0)
                    if names is None:
                        return set()
                    read |= names
    return read


def _attributes_in(
    cls: Class, method: cst.FunctionDef, node: cst.BaseExpression, depth: int
) -> set[str] | None:
    """The attributes in an expression that has nothing else but constants; None if it has."""
    if isinstance(node, _LITERALS) and not isinstance(node, cst.FormattedString):
        return set()
    if isinstance(node, cst.Attribute):
        own = isinstance(node.value, cst.Name) and node.value.value == receiver_of(method)
        return {node.attr.value} if own else None
    if isinstance(node, cst.Name):
        values = [value for name, value in _assigned_variables(method) if name == node.value]
        if len(values) == 1 and values[0] is not None and depth < 3:
            return _attributes_in(cls, method, values[0], depth + 1)
        known = cls.scope.lookup(node.value) if not values else None
        return set() if isinstance(known, Const) else None
    if isinstance(node, cst.Call) and called_name(node) in ("int", "hash"):
        parts = [arg.value for arg in node.args]
    elif isinstance(node, _OPERATIONS):
        parts = [one for one in node.children if isinstance(one, cst.BaseExpression)]
        parts += [one.value for one in node.children if isinstance(one, cst.Element)]
    else:
        return None
    read: set[str] = set()
    for part in parts:
        names = _attributes_in(cls, method, part, depth)
        if names is None:
            return None
        read |= names
    return read


def _assigned_variables(method: cst.FunctionDef) -> Iterator[tuple[str, cst.BaseExpression | None]]:
    """The variables that a function assigns to, each with its value; None if it is not simple."""
    every = (*method.params.params, *method.params.kwonly_params)
    yield from ((param.name.value, None) for param in every)
    for node in descend(method.body):
        if isinstance(node, cst.Assign):
            for target in node.targets:
                if isinstance(target.target, cst.Name):
                    yield target.target.value, node.value
        elif isinstance(node, cst.AugAssign | cst.AnnAssign | cst.For | cst.CompFor):
            if isinstance(node.target, cst.Name):
                yield node.target.value, None


def _assigned_attributes(method: cst.FunctionDef) -> Iterator[tuple[str, cst.CSTNode]]:
    """The attributes of its object that a method sets, with the statements."""
    receiver = receiver_of(method)
    for node in descend(method.body):
        for target in _targets(node):
            if isinstance(target.value, cst.Name) and target.value.value == receiver:
                yield target.attr.value, node


def _targets(node: cst.CSTNode) -> list[cst.Attribute]:
    """The attributes that a statement sets."""
    targets: list[cst.CSTNode] = []
    if isinstance(node, cst.Assign):
        targets = [one.target for one in node.targets]
    elif isinstance(node, cst.AugAssign | cst.AnnAssign):
        targets = [node.target]
    nested = [one.value for t in targets if isinstance(t, cst.Tuple) for one in t.elements]
    return [one for one in (*targets, *nested) if isinstance(one, cst.Attribute)]


def _setters(cls: Class, giving: list[cst.FunctionDef]) -> dict[str, list[str]]:
    """The attributes that methods set to what they get, with the names of these methods."""
    found: dict[str, list[str]] = {}
    for klass in cls.mro():
        for name, one in klass.attributes.items():
            node = one.node if isinstance(one, Function) else None
            if not isinstance(node, cst.FunctionDef) or node in giving or name == "__init__":
                continue
            given = {value for value, _ in _assigned_variables(node)}
            for attribute, statement in _assigned_attributes(node):
                if not any(
                    isinstance(n, cst.Name) and n.value in given for n in descend(statement)
                ):
                    continue
                found.setdefault(attribute, []).append(name)
    return found


def _may_be_set_out_of_sight(run: Run, name: str, method: str) -> bool:
    """Whether code that was not followed may call a method of a sampler, or set its attribute."""
    quoted = re.compile(rf"""(hasattr\([^()]*(?:\([^()]*\))?[^()]*)?["']{re.escape(method)}["']""")
    for source in run.project.sources.values():
        if any(match[1] is None for match in quoted.finditer(source.text)):
            return True
        if f".{method}" not in source.text and f".{name}" not in source.text:
            continue
        for function, node in _with_functions(source.tree, ""):
            reads: list[cst.Attribute] = []
            if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
                called = node.func.attr.value == method and function != method
                reads = [node.func] if called else []
            else:
                reads = [one for one in _targets(node) if one.attr.value == name]
            if any(_may_be(run, one.value) for one in reads):
                return True
    return False


def _with_functions(node: cst.CSTNode, function: str) -> Iterator[tuple[str, cst.CSTNode]]:
    """All nodes, each with the name of the function that it is in."""
    yield function, node
    inside = node.name.value if isinstance(node, cst.FunctionDef) else function
    for child in node.children:
        yield from _with_functions(child, inside)


def _may_be(run: Run, node: cst.BaseExpression) -> bool:
    """Whether an expression may be a sampler although the run does not know that it is."""
    if isinstance(node, cst.Name) and node.value == "self":
        return False
    value = run.evaluations.get(node)
    return value is None or isinstance(run.settle(value), Unknown)

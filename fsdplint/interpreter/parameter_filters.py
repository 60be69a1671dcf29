"""The tests by which a program filters parameters: `[p for p in ... if p.ndim > 1]`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

import libcst as cst

from fsdplint.interpreter.escape import modules_in
from fsdplint.interpreter.left_out_parameters import Held, left_out
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    ParameterId,
    ParameterName,
    ParametersOf,
    ShardTensor,
    StateValue,
)
from fsdplint.interpreter.values import (
    Condition,
    Const,
    Dict,
    Function,
    Sequence,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.source.positions import code_children, descend
from fsdplint.source.source import NodeSite
from fsdplint.trace import ANY_ATTRIBUTE, GuardKind

_ASKS = {"builtins.hasattr", "builtins.getattr"}
DIMENSIONS, LEAF_NAME = "dimensions", "leaf name"


# Names of parameters themselves, not of the modules that hold them.
_LEAF = re.compile(r"(^|\.)(bias|weight)$")


def filters_in(run: Run, tests: Iterable[cst.CSTNode]) -> set[str]:
    """The properties of a parameter that evaluated tests read."""
    found: set[str] = set()
    for test in tests:
        nodes = _with_called(run, test)
        if any(_is_dimensions(run, node) for node in nodes):
            found.add(DIMENSIONS)
        if any(isinstance(run.evaluations.get(node), ParameterName) for node in nodes):
            if any(_LEAF.search(text) for node in nodes for text in _texts(run, node)):
                found.add(LEAF_NAME)
    return found


def _reads_name(run: Run, test: cst.CSTNode) -> bool:
    nodes = _with_called(run, test)
    return any(isinstance(run.evaluations.get(node), ParameterName) for node in nodes)


def selected_by_name(run: Run, value: Value | None) -> bool:
    """Whether a test of names selects all parameters that an optimizer gets: no other group takes
    those that it leaves out.
    """
    value = run.settle(value) if value is not None else None
    if isinstance(value, Dict):
        return selected_by_name(run, value.items.get("params"))
    if isinstance(value, Sequence):
        several = any(isinstance(run.settle(item), Dict) for item in value.items[1:])
        return not several and any(selected_by_name(run, item) for item in value.items)
    return isinstance(value, ParametersOf) and value.by_name


def tests_tensor(run: Run, test: cst.CSTNode) -> bool:
    """Whether a test reads one of several tensors (parameters, entries of a state), or its name,
    itself or in a function that it calls."""
    return any(_is_one_tensor(run.evaluations.get(node)) for node in _with_called(run, test))


def _with_called(run: Run, test: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes of a test, of the calls that gave the variables in it, and of the functions of the
    program that it calls."""
    own = _nodes(run, test)
    found = list(own)
    for node in own:
        value = run.evaluations.get(node) if type(node) is cst.Name else None
        made = value.created_at if isinstance(value, Unknown) else None
        if made is not None and made.source is run.source:
            found += _nodes(run, made.node)
    called = [run.evaluations.get(node.func) for node in found if type(node) is cst.Call]
    for function in called:
        if isinstance(function, Function):
            found += _nodes(run, function.node)
    return found


def attributes_asked_for(run: Run, test: cst.CSTNode) -> frozenset[str]:
    """The attributes that a test asks objects for, itself or by the value of a variable."""
    found: set[str] = set()
    for node in _nodes(run, test):
        value = run.evaluations.get(node)
        if isinstance(value, Condition) and value.asks_for:
            found.add(value.asks_for)
        if isinstance(node, cst.Call) and len(node.args) > 1:
            asks, name = run.evaluations.get(node.func), node.args[1].value
            if isinstance(asks, Symbol) and asks.name in _ASKS:
                # Evaluating a name or a literal again has no effect.
                simple = isinstance(name, cst.Name | cst.SimpleString)
                known = run.eval(name) if simple else run.evaluations.get(name)
                found.add(str(known.value) if isinstance(known, Const) else ANY_ATTRIBUTE)
    return frozenset(found)


def _is_one_tensor(value: Value | None) -> bool:
    if value is None:
        return False
    if isinstance(value, ParametersOf):
        return value.element and not value.name
    if isinstance(value, StateValue):
        return value.tensor
    return isinstance(value, ParameterName | ShardTensor)


def _is_dimensions(run: Run, node: cst.CSTNode) -> bool:
    """Whether a node is `p.dim()`, `p.ndim` or `len(p.shape)`."""
    sized = False
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
        if node.func.value == "len" and len(node.args) == 1:
            node, sized = node.args[0].value, True
    if isinstance(node, cst.Call):
        node = node.func
    if not isinstance(node, cst.Attribute):
        return False
    value = run.evaluations.get(node.value)
    if not isinstance(value, ParametersOf) or not value.element:
        return False
    return node.attr.value in ({"shape", "size"} if sized else {"ndim", "dim"})


def _reads_identity(run: Run, node: cst.CSTNode) -> bool:
    """Whether a test reads `id(p)`."""
    read = (run.evaluations.get(one) for one in _nodes(run, node) if isinstance(one, cst.Call))
    return any(isinstance(one, ParameterId) for one in read)


def _texts(run: Run, node: cst.CSTNode) -> list[str]:
    if isinstance(node, cst.SimpleString):
        value = node.evaluated_value
        return [value] if isinstance(value, str) else []
    held = run.evaluations.get(node)
    items = held.items if isinstance(held, Sequence) else []
    return [i.value for i in items if isinstance(i, Const) and isinstance(i.value, str)]


def with_filters(run: Run, value: Value, tests: Iterable[Held]) -> Value:
    """Add the filters of some tests, with their results, to a parameter, or to a pair that contains
    one."""
    held = [value] if isinstance(value, ParametersOf) else []
    if isinstance(value, Sequence):
        held = [item for item in value.items if isinstance(item, ParametersOf)]
    if not any(item.element for item in held):
        return value
    held_tests = list(tests)
    nodes = [test for test, _ in held_tests]
    if any(holds and selects_trainable(test) for test, holds in held_tests):
        value = _as_trainable(value)
    found, by_name = filters_in(run, nodes), any(_reads_name(run, node) for node in nodes)
    if not (found or by_name or any(_reads_identity(run, node) for node in nodes)):
        return value
    if isinstance(value, ParametersOf):
        return dataclasses.replace(
            value,
            filtered_by=value.filtered_by | found,
            by_name=value.by_name or by_name,
            left_out=left_out(run, value, held_tests),
        )
    assert isinstance(value, Sequence)
    return dataclasses.replace(
        value, items=[with_filters(run, item, held_tests) for item in value.items]
    )


def selects_trainable(test: cst.CSTNode) -> bool:
    """Whether a test holds only for parameters that get gradients: `p.requires_grad and ...`."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return selects_trainable(test.left) or selects_trainable(test.right)
    return isinstance(test, cst.Attribute) and test.attr.value == "requires_grad"


def _as_trainable(value: Value) -> Value:
    if isinstance(value, ParametersOf):
        return dataclasses.replace(value, trainable=True)
    assert isinstance(value, Sequence)
    return dataclasses.replace(
        value,
        items=[
            dataclasses.replace(one, trainable=True) if isinstance(one, ParametersOf) else one
            for one in value.items
        ],
    )


def _is_under_test_of_gradients(run: Run, node: cst.CSTNode) -> bool:
    """Whether an `if` around a node, or one before it that skips the turn, selects the parameters
    with `requires_grad`."""
    below, around = node, run.source.parent(node)
    while around is not None and not isinstance(around, cst.FunctionDef | cst.Lambda):
        if isinstance(around, cst.If) and below is around.body and selects_trainable(around.test):
            return True
        if isinstance(around, cst.For):
            return any(map(_skips_frozen, around.body.body))
        below, around = around, run.source.parent(around)
    return False


def _skips_frozen(statement: cst.CSTNode) -> bool:
    """`if not p.requires_grad: continue`"""
    if not isinstance(statement, cst.If) or not isinstance(statement.test, cst.UnaryOperation):
        return False
    negated = isinstance(statement.test.operator, cst.Not)
    skips = any(isinstance(one, cst.Continue) for one in descend(statement.body))
    return negated and skips and selects_trainable(statement.test.expression)


def with_current_filters(run: Run, value: Value, node: cst.CSTNode) -> Value:
    """Add the filters of the active guards, and of `if`s around a node, to a value that is put into
    a list there."""
    if isinstance(value, ParametersOf) and value.element:
        if _is_under_test_of_gradients(run, node):
            value = _as_trainable(value)
    tests = [
        (entry.guard.site.node, entry.guard.holds)
        for entry in run.guards
        if entry.guard.kind is GuardKind.VARYING and isinstance(entry.guard.site, NodeSite)
    ]
    return with_filters(run, value, tests) if tests else value


def tested_in_loop(run: Run) -> bool:
    """Whether an undecided test in the innermost loop leads to this point."""
    if not run.loop_guards:
        return False
    around = {id(entry) for entry in run.loop_guards[-1]}
    return any(
        id(entry) not in around and entry.guard.kind is not GuardKind.RANK for entry in run.guards
    )


def doubt_filter(run: Run, value: Value) -> None:
    """Record that an undecided test selected the modules in a value."""
    for module in modules_in(run, value):
        run.trace.modules[module.id].perhaps_chosen = True


def filters_of(run: Run, value: Value | None) -> set[str]:
    """The filters of the parameters in the first argument of an optimizer."""
    value = run.settle(value) if value is not None else None
    if isinstance(value, ParametersOf):
        return set(value.filtered_by)
    parts: list[Value] = []
    if isinstance(value, Sequence):
        parts = value.items
    elif isinstance(value, Dict) and "params" in value.items:
        parts = [value.items["params"]]
    return {choice for part in parts for choice in filters_of(run, part)}


def _nodes(run: Run, node: cst.CSTNode) -> list[cst.CSTNode]:
    """The expressions in a node, itself included; worked out once for all runs."""
    known = run.project.expressions_below.get(node)
    if known is None:
        below = [node]
        for current in below:
            below.extend(code_children(current))
        known = [one for one in below if isinstance(one, cst.BaseExpression)]
        run.project.expressions_below[node] = known
    return known

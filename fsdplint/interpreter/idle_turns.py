"""Turns of a loop over modules that do nothing.

A loop over the modules of a model, and `Module.apply`, test the class of each module, and most of
them are of classes for which nothing is done. If no statement but tests was executed for one
module, none is for another one of the same form, because the tests ask nothing but the form. Such
turns are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Function, ModuleValue, Value
from fsdplint.interpreter.values import Sequence as Items
from fsdplint.syntax.dotted import bound_by
from fsdplint.syntax.named_sites import names_in

Turn = TypeVar("Turn", bound=Callable[[], object])

FEWEST = 4  # modules: with less, there is nothing to save

_IDLE = {cst.Pass, cst.Continue, cst.Return, cst.Expr}
_OF_FORM = {"isinstance", "hasattr"}
_PLAIN = (cst.Name, cst.Attribute, cst.SimpleString, cst.Integer, cst.Tuple, cst.List, cst.Set)


def without_repeated(
    run: Run,
    body: cst.BaseSuite,
    target: cst.CSTNode,
    elements: Sequence[Value],
    turns: Iterable[Turn],
) -> Iterator[Turn]:
    """The turns of a loop over elements, without those that repeat one that did nothing.

    The last turn is made in any case: the target keeps its element.

    target: what each element is assigned to.
    """
    names = names_in(target)
    tests = _tests_of_form(body, names) if len(elements) >= FEWEST else []
    if not tests:
        yield from turns
        return
    idle: set[Hashable] = set()
    has_flags = any(_has_flag(test, names) for test in tests)
    for element, turn in zip(elements, turns, strict=True):
        form = _form(run, element)
        if form is None or element is elements[-1]:
            yield turn
        elif form not in idle:
            before = _state(run)
            yield turn
            if _state(run) == before:
                idle.add(form)
            elif has_flags:
                idle.clear()  # the turn may have set one


def apply_function(
    run: Run, function: Value, modules: Sequence[Value], apply: Callable[[Value], object]
) -> None:
    """Apply a function to modules but those that repeat one for which it did nothing."""
    function = run.settle(function)
    turns: list[Callable[[], object]] = [partial(apply, one) for one in modules]
    made: Iterable[Callable[[], object]] = turns
    if isinstance(function, Function) and isinstance(function.node, cst.FunctionDef):
        parameters = function.node.params.params
        if len(parameters) == 1:
            made = without_repeated(run, function.node.body, parameters[0].name, modules, turns)
    for turn in made:
        turn()


def is_idle(line: cst.SimpleStatementLine) -> bool:
    """Whether a line does nothing itself."""
    return all(type(one) in _IDLE and _is_idle(one) for one in line.body)


def _is_idle(statement: cst.BaseSmallStatement) -> bool:
    if isinstance(statement, cst.Return):
        return statement.value is None
    return not isinstance(statement, cst.Expr) or isinstance(statement.value, cst.SimpleString)


def _state(run: Run) -> tuple[int, ...]:
    """What a turn that does nothing leaves as it is."""
    return run.lines, len(run.trace.events), run.changes, run.structure, len(run.hooks)


def _form(run: Run, element: Value) -> Hashable:
    """What tests of its class and attributes can tell of the only module in an element."""
    items = element.items if isinstance(element, Items) else [element]
    modules = [item for item in map(run.settle, items) if isinstance(item, ModuleValue)]
    if len(modules) != 1 or modules[0].stands_for_parts or modules[0].inner is not None:
        return None
    module = modules[0]
    info = run.trace.modules[module.id]
    names = frozenset((*module.attributes, *info.children))
    kind = id(module.cls), info.class_name, module.library_class
    return *kind, module.wrapper, module.sharded, names


def _tests_of_form(body: cst.BaseSuite, target: set[str]) -> list[cst.BaseExpression]:
    """The tests that code has made which executes no line, if they only ask for the form of a
    module, and for flags.

    target: the names of the module, and of what comes with it.
    """
    tests = _tests_before_lines(body) or []
    assigned = {part for name in bound_by(body) for part in name.split(".")}
    known = all(_asks_form(test, target) and not names_in(test) & assigned for test in tests)
    return tests if known else []


def _has_flag(test: cst.BaseExpression, target: set[str]) -> bool:
    """Whether a part of a test does not ask for the module."""
    if isinstance(test, cst.BooleanOperation):
        return _has_flag(test.left, target) or _has_flag(test.right, target)
    if isinstance(test, cst.UnaryOperation):
        return _has_flag(test.expression, target)
    return _is_other(test, target)


def _tests_before_lines(body: cst.BaseSuite) -> list[cst.BaseExpression] | None:
    """The tests that are made before a line is executed; None if other code may be executed."""
    found: list[cst.BaseExpression] = []
    for statement in body.body:
        if isinstance(statement, cst.SimpleStatementLine) and is_idle(statement):
            continue
        if not isinstance(statement, cst.If):
            simple = isinstance(statement, cst.SimpleStatementLine | cst.BaseSmallStatement)
            return found if simple else None
        branch: cst.If | cst.Else | None = statement
        while branch is not None:
            inner = _tests_before_lines(branch.body)
            if inner is None:
                return None
            found += inner
            if isinstance(branch, cst.If):
                found.append(branch.test)
            branch = branch.orelse if isinstance(branch, cst.If) else None
    return found


def _asks_form(test: cst.BaseExpression, target: set[str]) -> bool:
    if isinstance(test, cst.BooleanOperation):
        return _asks_form(test.left, target) and _asks_form(test.right, target)
    if isinstance(test, cst.UnaryOperation):
        return _asks_form(test.expression, target)
    if isinstance(test, cst.Call) and len(test.args) == 2:
        is_known = isinstance(test.func, cst.Name) and test.func.value in _OF_FORM
        value, classes = test.args[0].value, test.args[1].value
        return is_known and _is_name(value, target) and _is_other(classes, target)
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        other = test.comparisons[0].comparator
        return _is_class(test.left, target) and _is_other(other, target)
    return _is_other(test, target)


def _is_class(node: cst.BaseExpression, target: set[str]) -> bool:
    """`type(target)`, `target.__class__` and its name."""
    if isinstance(node, cst.Attribute) and node.attr.value == "__name__":
        node = node.value
    if isinstance(node, cst.Attribute) and node.attr.value == "__class__":
        return _is_name(node.value, target)
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name):
        return False
    return node.func.value == "type" and all(_is_name(one.value, target) for one in node.args)


def _is_name(node: cst.BaseExpression, target: set[str]) -> bool:
    return isinstance(node, cst.Name) and node.value in target


def _is_other(node: cst.CSTNode, target: set[str]) -> bool:
    """Whether an expression calls nothing and does not ask for the module."""
    if isinstance(node, cst.Name):
        return node.value not in target
    if isinstance(node, cst.BinaryOperation):  # `nn.Linear | nn.LayerNorm`
        return isinstance(node.operator, cst.BitOr) and all(
            _is_other(one, target) for one in (node.left, node.right)
        )
    if isinstance(node, cst.Attribute):
        return _is_other(node.value, target)
    if not isinstance(node, _PLAIN):
        return False
    return all(_is_other(one.value, target) for one in getattr(node, "elements", ()))

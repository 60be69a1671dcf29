"""Names, attributes, and expressions that contain one expression."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import (
    branch_conditions,
    possible_lists,
    unfinished_saves,
)
from fsdplint.interpreter.assignment import assign
from fsdplint.interpreter.attributes import read_attribute
from fsdplint.interpreter.branch_conditions import Truth, Verdict, truth
from fsdplint.interpreter.decided_values import chosen_value
from fsdplint.interpreter.dispatch import evaluates
from fsdplint.interpreter.merging import (
    decisive,
    held_where,
    join_by_data,
    join_by_rank,
    join_sides,
)
from fsdplint.interpreter.module_attributes import WRAPPER_ATTRIBUTES, lacks_wrapper_attribute
from fsdplint.interpreter.rank_calls import chosen_method
from fsdplint.interpreter.ranks import value_by_name
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.skipped_reductions import doubt_own_data
from fsdplint.interpreter.torch_values import (
    HeldAtTimes,
    RankChoice,
)
from fsdplint.interpreter.turn_tests import with_condition
from fsdplint.interpreter.values import (
    Const,
    Function,
    RankLocal,
    Symbol,
    Unknown,
    Value,
    is_none,
)

BUILTINS = frozenset(
    "abs all any bool bytearray bytes callable classmethod delattr dict dir divmod enumerate eval "
    "exec exit filter float format frozenset getattr globals hasattr hash id input int "
    "isinstance issubclass iter len list locals map max memoryview min next object open ord pow "
    "print property quit range repr reversed round set setattr slice sorted staticmethod "
    "str sum super tuple type vars zip Exception ValueError RuntimeError "
    "NotImplementedError KeyError TypeError ImportError AssertionError StopIteration "
    "KeyboardInterrupt OSError FileNotFoundError AttributeError __import__".split()
)


_CONSTANTS = {"True": True, "False": False, "None": None}


@evaluates(cst.Name)
def eval_name(run: Run, node: cst.Name) -> Value:
    name = node.value
    if name in _CONSTANTS:
        return Const(_CONSTANTS[name], created_at=run.site(node))
    value = run.frames[-1].scope.lookup(name)
    if value is not None:
        return value.on_ranks(run.ranks()) if isinstance(value, RankChoice) else value
    if name in BUILTINS:
        return Symbol(f"builtins.{name}")
    return value_by_name(name, name)


@evaluates(cst.Attribute)
def eval_attribute(run: Run, node: cst.Attribute) -> Value:
    choice = run.eval_choice(node.value)
    value = run.settle(choice)
    if node.attr.value in WRAPPER_ATTRIBUTES and lacks_wrapper_attribute(run, value, node):
        return value  # as after a fix of this access
    if isinstance(value, Unknown) and value.origin and not value.differs:
        run.decisions.note_read(value.origin)
    found = read_attribute(run, value, node.attr.value, node)
    return chosen_method(run, choice, found, node)


@evaluates(cst.IfExp)
def eval_if_exp(run: Run, node: cst.IfExp) -> Value:
    if node in run.chosen_sides:
        return run.eval(node.body if run.chosen_sides[node] else node.orelse)
    begin = run.steps
    verdict = truth(run, node.test)
    if verdict.guards and verdict.outcome in {Truth.TRUE, Truth.FALSE}:
        doubt_own_data(run, node.orelse if verdict.outcome is Truth.TRUE else node.body)
    if verdict.outcome is Truth.TRUE:
        with run.under_guards(verdict.guards):
            value = run.eval(node.body)
        if verdict.guards and _is_none(node.orelse):
            value = held_where(value, run.evaluations.get(node.test))
    elif verdict.outcome is Truth.FALSE:
        with run.under_guards(verdict.guards):
            value = run.eval(node.orelse)
    elif verdict.outcome is Truth.RANK and verdict.rank_test is not None:
        test = verdict.rank_test
        with run.under_guards([(branch_conditions.rank_guard(run, node.test, test, True), "")]):
            one = run.eval(node.body)
        with run.under_guards([(branch_conditions.rank_guard(run, node.test, test, False), "")]):
            two = run.eval(node.orelse)
        value = join_by_rank(branch_conditions.placed(run, test, node.test), one, two)
    elif verdict.local is not None:
        value = _chosen_by_data(run, node, verdict, verdict.local)
    else:
        one, two = run.eval(node.body), run.eval(node.orelse)
        listed = possible_lists.named(run, node, one, two)
        value = (
            join_sides(one, two, verdict.predicate)
            if listed is None
            else with_condition(verdict.predicate, listed, one, two)
        )
        if isinstance(value, HeldAtTimes) and is_none(two):
            value.test = run.evaluations.get(node.test)
    if verdict.guards and decisive(value):
        with run.under_guards(verdict.guards):
            run.mark_relevant()
    return chosen_value(value, verdict.keys, begin)


def _is_none(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"


def _chosen_by_data(run: Run, node: cst.IfExp, verdict: Verdict, local: RankLocal) -> Value:
    """One of two values between which each rank chooses by its own data."""
    sides: list[Value] = []
    for holds, side in ((True, node.body), (False, node.orelse)):
        guard = branch_conditions.varying_guard(run, node.test, holds, local, verdict.predicate)
        with run.under_guards([*verdict.guards, (guard, "")]):
            sides.append(run.eval(side))
    return join_by_data(sides[0], sides[1], local)


@evaluates(cst.NamedExpr)
def eval_named_expr(run: Run, node: cst.NamedExpr) -> Value:
    value = run.eval_choice(node.value)
    assign(run, node.target, value)
    return value


@evaluates(cst.Lambda)
def eval_lambda(run: Run, node: cst.Lambda) -> Value:
    return Function(node, run.scope, run.site(node), created_at=run.site(node))


@evaluates(cst.Await)
def eval_await(run: Run, node: cst.Await) -> Value:
    unfinished_saves.note_wait(run)
    return run.eval(node.expression)


@evaluates(cst.StarredElement)
def eval_starred_element(run: Run, node: cst.StarredElement) -> Value:
    return run.eval(node.value)

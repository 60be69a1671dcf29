"""The values of comparisons: constants, tests of the rank or of tensors, and conditions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import libcst as cst

from fsdplint.interpreter import amounts, own_quotients, same_noise
from fsdplint.interpreter.choices import certainly_lacks, is_empty_registry
from fsdplint.interpreter.functions import call_function
from fsdplint.interpreter.object_comparison import identity, is_present, membership, note_class_name
from fsdplint.interpreter.option_texts import as_number
from fsdplint.interpreter.own_dicts import as_dict
from fsdplint.interpreter.parameter_keys import has_name
from fsdplint.interpreter.position_tests import changing_loop
from fsdplint.interpreter.rank_local import derive_rank_local, local_of, own_truth
from fsdplint.interpreter.rank_tests import NEGATED, compare_rank, mirror, test_choice
from fsdplint.interpreter.ranks import LAUNCHED, WORLD_SIZE, assumed_rank, note_rank_use
from fsdplint.interpreter.replaced_parameters import note_membership
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.shared_draws import note_comparison
from fsdplint.interpreter.torch_values import (
    HeldAtTimes,
    LoaderValue,
    NameTest,
    ParameterName,
    ParametersOf,
    PartlyHeld,
    RankChoice,
    RankTest,
    RankValue,
    ShardTensor,
    TensorValue,
)
from fsdplint.interpreter.torch_version import compare_versions, is_version
from fsdplint.interpreter.turn_tests import comparison_predicate, presence_at_times
from fsdplint.interpreter.values import (
    Condition,
    Const,
    Dict,
    Function,
    Instance,
    LibraryObject,
    RankLocal,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import Ranks
from fsdplint.trace.predicates import negated

_DECIDED = (Const, Symbol, LibraryObject)
_OF_TENSORS = (ShardTensor, ParametersOf)
_EQUALITIES = (cst.Is, cst.IsNot, cst.Equal, cst.NotEqual)
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    cst.Equal: operator.eq,
    cst.NotEqual: operator.ne,
    cst.LessThan: operator.lt,
    cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt,
    cst.GreaterThanEqual: operator.ge,
    cst.In: lambda a, b: a in b,
    cst.NotIn: lambda a, b: a not in b,
    cst.Is: lambda a, b: a is b or a == b,
    cst.IsNot: lambda a, b: not (a is b or a == b),
}
_ORDERS = (
    cst.Equal, cst.NotEqual, cst.LessThan, cst.LessThanEqual, cst.GreaterThan, cst.GreaterThanEqual,
)  # fmt: skip


def compare(run: Run, node: cst.Comparison) -> Value:
    """The value of `left op right`; chains of comparisons are Unknown."""
    choice = run.eval_choice(node.left)
    left = run.settle(choice)
    rights = [run.eval(c.comparator) for c in node.comparisons]
    note_comparison(run, node, [left, *rights])
    if len(rights) == 1 and isinstance(node.comparisons[0].operator, cst.In | cst.NotIn):
        note_membership(run, node, left, rights[0])
    presence = _presence(choice, node, rights)
    if presence is not None:
        return presence
    result = _comparison_value(run, node, left, rights)
    if len(rights) == 1 and isinstance(result, Unknown | Condition):
        predicate = comparison_predicate(left, node.comparisons[0].operator, rights[0])
        if isinstance(result, Condition):
            result.predicate = negated(predicate) if result.negated else predicate
        else:
            result.term = predicate
    if not isinstance(result, Const):
        amounts.note_comparison(run, [left, *rights], result)
        own_quotients.note_operation(run, "compare", [left, *rights], result)
        if run.same_noise:
            same_noise.note_operation(run, "compare", [left, *rights], result)
        return result
    known = [one for one in (left, *rights) if isinstance(one, _DECIDED)]
    decided_by = [key for one in known for key in one.decided_by]
    return Const(result.value, tuple(decided_by)) if decided_by else result


def _presence(choice: Value, node: cst.Comparison, rights: list[Value]) -> Value | None:
    """What `logger is not None` is where there is a logger on some ranks, or at times, only."""
    op = node.comparisons[0].operator
    if (
        not isinstance(choice, PartlyHeld | LoaderValue)
        or len(rights) != 1
        or not isinstance(op, _EQUALITIES)
    ):
        return None
    if not is_none(rights[0]):
        return None
    if isinstance(choice, HeldAtTimes):
        return presence_at_times(choice, choice.test, holds=isinstance(op, NEGATED))
    return test_choice(choice, lambda one: is_none(one) != isinstance(op, NEGATED))


def _with_turns(run: Run, node: cst.Comparison, op: cst.BaseCompOp, result: Value) -> Value:
    """A test of the rank, with the loop whose turns it gives to one rank each."""
    if isinstance(result, RankTest) and isinstance(op, _EQUALITIES):
        result.loop = changing_loop(run, node)
        result.in_turn = result.in_turn or result.loop is not None
    return result


def _comparison_value(run: Run, node: cst.Comparison, left: Value, rights: list[Value]) -> Value:
    if len(rights) != 1:
        varying = any(isinstance(v, Unknown) and v.varying for v in (left, *rights))
        ordered = all(isinstance(one.operator, _ORDERS) for one in node.comparisons)
        local = derive_rank_local(left, *rights) if ordered else None
        return Unknown(origin=run.text(node), varying=varying, rank_local=local)
    op = node.comparisons[0].operator
    left, right = as_number(left), as_number(rights[0])
    if isinstance(op, cst.In | cst.NotIn) and isinstance(right, Instance):
        answer = _own_membership(run, node, left, right)
        if answer is not None:
            return answer
    if isinstance(op, cst.Equal | cst.In):
        note_class_name(left, right)
    if isinstance(left, Const) and isinstance(right, Const):
        left = assumed_rank(run, node.left, left) or left
        right = assumed_rank(run, node.comparisons[0].comparator, right) or right
    if isinstance(right, RankValue) and not isinstance(left, RankValue):
        left, right = right, left
        op = mirror(op)
    if isinstance(left, RankValue):
        if constant(right) == 0:
            note_rank_use(run, node, left)
        return _with_turns(run, node, op, compare_rank(left, op, right))
    if isinstance(op, _EQUALITIES) and _never_equal(run, left, right):
        return Unknown(varying=True)
    if isinstance(left, _OF_TENSORS) or isinstance(right, _OF_TENSORS):
        local = derive_rank_local(left, *rights) if isinstance(op, _ORDERS) else None
        return Unknown(varying=True, rank_local=local)  # differs from tensor to tensor
    if isinstance(op, _ORDERS) and not is_none(right):
        if isinstance(left, TensorValue) or isinstance(right, TensorValue):
            return Unknown(varying=True, rank_local=derive_rank_local(left, right))
    if is_none(right) and isinstance(op, _EQUALITIES):
        if isinstance(left, Unknown) and is_present(left):
            return Const(isinstance(op, NEGATED))
        own = local_of(left)
        if own is not None and own.optional:
            return Unknown(varying=True, rank_local=RankLocal(own.source))
    chosen_local = derive_rank_local(left, right) if isinstance(left, RankChoice) else None
    if chosen_local is not None and isinstance(op, _ORDERS):
        return Unknown(varying=True, rank_local=chosen_local)
    if isinstance(op, _ORDERS) and isinstance(right, Const):
        chosen = test_choice(left, lambda one: _compared(one, op, right))
        if chosen is not None:
            return _with_turns(run, node, op, chosen)  # `count > 3` of a count of one rank
    if _by_rank(left) or _by_rank(right):
        if run.ranks() is Ranks.ONE:
            return Unknown(varying=True)  # no other rank is here
        # of a value derived from the rank
        return _with_turns(run, node, op, RankTest(Ranks.SOME, Ranks.SOME))
    if isinstance(op, cst.In | cst.NotIn) and _constants(right):
        local = derive_rank_local(left)
        if local is not None:
            return Unknown(varying=True, rank_local=local)
    if isinstance(op, _ORDERS):
        local = _own_elements(left, right) or _own_number(left, right)
        if local is not None:
            return Unknown(varying=True, rank_local=local)
    by_version = compare_versions(left, type(op), right)
    if by_version is not None:
        text = run.text(node)
        return Condition(text, text, with_fsdp2=by_version)
    if isinstance(op, _EQUALITIES) and not (is_version(left) and is_version(right)):
        known = identity(left, right)
        if known is not None:
            return Const(known != isinstance(op, NEGATED))
    if isinstance(left, Const) and isinstance(right, Const):
        try:
            return Const(bool(COMPARISONS[type(op)](left.value, right.value)))
        except (TypeError, KeyError):
            return Unknown()
    if isinstance(left, Unknown) and left.below is not None and _same_number(left.below, right):
        if isinstance(op, cst.LessThan | cst.NotEqual):
            return Const(True)
        if isinstance(op, cst.GreaterThanEqual | cst.Equal):
            return Const(False)
    bounded = _by_lower_bound(left, op, right)
    if bounded is None:
        bounded = _by_lower_bound(right, mirror(op), left)
    if bounded is not None:
        return Const(bounded)
    if isinstance(op, cst.In | cst.NotIn):
        found = membership(left, right)
        held = as_dict(right)
        if isinstance(held, Dict) and isinstance(left, ParameterName) and has_name(run, held, left):
            found = True
        if found is False and isinstance(held, Dict) and isinstance(left, Const):
            found = not certainly_lacks(run, held, left.value)
        if found is None and isinstance(held, Dict) and is_empty_registry(run, held):
            found = False if isinstance(left, Unknown) and not left.differs else None
        if found is not None:
            return Const(found != isinstance(op, cst.NotIn))
    return _condition(run, node, left, op, right)


def _own_membership(run: Run, node: cst.Comparison, left: Value, right: Instance) -> Value | None:
    """What the method `__contains__` of an object says, if it says that of a constant or a set."""
    method = right.cls.lookup("__contains__")
    if not isinstance(method, Function):
        return None
    answer = run.settle(call_function(run, method, right, [left], {}, node))
    is_negated = isinstance(node.comparisons[0].operator, NEGATED)
    if isinstance(answer, Const):
        return Const(bool(answer.value) != is_negated, answer.decided_by)
    if isinstance(answer, Condition):
        text = _positive_text(run, node) if is_negated else run.text(node)
        return replace(answer, text=text, negated=answer.negated != is_negated)
    return None


def _compared(one: Value, op: cst.BaseCompOp, other: Const) -> bool | None:
    """The result for two constants; None if it is not known."""
    if not isinstance(one, Const):
        return None
    try:
        return bool(COMPARISONS[type(op)](one.value, other.value))
    except TypeError:
        return None


def _never_equal(run: Run, left: Value, right: Value) -> bool:
    """Whether one value is a time that a rank reads from its clock, and the other a constant.

    `if self.last_save == 0.0` asks whether the time was read at all, which the ranks agree on.
    """
    for one, other in ((left, right), (right, left)):
        local = local_of(one)
        if local is not None and local.source in run.clocks and isinstance(other, Const):
            return True
    return False


def _own_elements(left: Value, right: Value) -> RankLocal | None:
    """What makes the test of two values different on each rank: `window == []` tests a length."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Sequence) and not (one.items or one.open):
            return own_truth(other)
    return derive_rank_local(left, right)


def _own_number(left: Value, right: Value) -> RankLocal | None:
    """What makes a test such as `len(part) == 0` different on each rank."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Unknown) and isinstance(other, Const):
            return one.own_number
    return None


def _by_lower_bound(left: Value, op: cst.BaseCompOp, right: Value) -> bool | None:
    """The result of a test that a lower bound decides; None for any other."""
    if not (isinstance(left, Unknown) and left.at_least > 0 and isinstance(right, Const)):
        return None
    if not isinstance(right.value, int):
        return None
    if left.at_least > right.value:
        if isinstance(op, cst.GreaterThan | cst.GreaterThanEqual | cst.NotEqual):
            return True
        return False if isinstance(op, cst.LessThan | cst.LessThanEqual | cst.Equal) else None
    if left.at_least == right.value and isinstance(op, cst.GreaterThanEqual | cst.LessThan):
        return isinstance(op, cst.GreaterThanEqual)
    return None


def _same_number(one: Value, other: Value) -> bool:
    """Whether two numbers are certainly the same throughout a run."""
    if isinstance(one, Const) and isinstance(other, Const):
        return bool(one.value == other.value)
    if isinstance(one, Unknown) and isinstance(other, Unknown) and not one.varying:
        return one is other or bool(one.origin and one.origin == other.origin)
    return False


def _by_rank(value: Value) -> bool:
    return isinstance(value, Unknown) and value.by_rank


def name_origin(run: Run, value: Value) -> None:
    """Give an unknown result of a call a stable name, so that one decision holds everywhere."""
    if isinstance(value, Unknown) and not (value.origin or value.varying or run.loop_depth):
        created_at = value.created_at
        if created_at is not None and value.part_of is None:
            value.origin = run.text(created_at.node)


def _condition(
    run: Run, node: cst.Comparison, left: Value, op: cst.BaseCompOp, right: Value
) -> Value:
    name_origin(run, left)
    of_ranks = _of_ranks(left, op, right, single_rank=run.decisions.single_rank)
    if of_ranks is not None:
        run.decisions.world_size_tests.add(node)
        return Const(of_ranks)
    text = run.text(node)
    if any(isinstance(v, Unknown) and v.differs for v in (left, right)):
        if isinstance(op, cst.In) and isinstance(right, ParameterName) and isinstance(left, Const):
            return NameTest(varying=True, texts=(str(left.value),))
        return Unknown(varying=True)
    if run.loop_depth and isinstance(left, Symbol) and isinstance(right, Symbol):
        return Unknown(varying=True)  # `tracker.step == tracker.steps` of a library's object
    negated = isinstance(op, NEGATED)
    positive = _positive_text(run, node) if negated else text
    if isinstance(left, Const) and isinstance(right, Unknown):
        if isinstance(op, cst.Equal | cst.NotEqual):
            left, right = right, left  # `type(part).__name__ == name` depends on the part
    if isinstance(left, Unknown) and left.origin and isinstance(right, Const):
        if right.value is None:
            key = f"{left.origin} is None"
            return Condition(key, positive, negated, left.origin, "is None")
        if isinstance(op, cst.Equal | cst.NotEqual):
            key = f"{left.origin} == {right.value!r}"
            return Condition(key, positive, negated, left.origin, "==", right.value)
        if type(right.value) is int:
            return _bound(run, node, left.origin, op, right.value)
    if isinstance(left, Unknown) and run.loop_depth and not left.origin:
        return Unknown(varying=True)
    choices = _constants(right) if isinstance(op, cst.In | cst.NotIn) else None
    if isinstance(left, Unknown) and left.origin and choices:
        # A registry may have other entries at another test.
        key = f"{left.origin} in {choices!r}" if isinstance(as_dict(right), Dict) else positive
        return Condition(key, positive, negated, left.origin, "in", choices)
    if isinstance(op, cst.In | cst.NotIn) and isinstance(left, Const):
        if isinstance(right, Unknown) and right.origin:  # not every `dataset` is the same one
            key = f"{left.value!r} in {right.origin}"
            if not isinstance(left.value, str):
                return Condition(key, positive, negated)
            return Condition(key, positive, negated, right.origin, "contains", left.value)
    return Condition(positive, positive, negated)


def _constants(value: Value) -> tuple[object, ...] | None:
    """The elements of a list, tuple or set of constants, or the keys of a dict; None for any other
    value."""
    if isinstance(value, Dict) and not value.open:
        return tuple(value.items)
    if not isinstance(value, Sequence) or value.open:
        return None
    items = [item.value for item in value.items if isinstance(item, Const)]
    return tuple(items) if len(items) == len(value.items) else None


def _of_ranks(left: Value, op: cst.BaseCompOp, right: Value, *, single_rank: bool) -> bool | None:
    """The result of a test of the number of ranks; None for any other test.

    A run assumes a launcher and more than one rank, unless it is a `single_rank` run.
    """
    if isinstance(op, cst.In | cst.NotIn):
        launched = isinstance(left, Const) and left.value in LAUNCHED
        if launched and isinstance(right, Symbol) and right.name == "os.environ":
            return isinstance(op, cst.In) != single_rank
        return None
    if not isinstance(left, Unknown) or left.origin != WORLD_SIZE or not isinstance(right, Const):
        return None
    number = right.value
    if number is None:
        return isinstance(op, NEGATED)
    if not isinstance(number, int):
        return None
    if single_rank:
        return _compare_numbers(1, op, number)
    if number == 2 and isinstance(op, cst.GreaterThanEqual):
        return True
    if number > 1:
        return None
    return isinstance(op, cst.GreaterThan | cst.GreaterThanEqual | cst.NotEqual)


def _compare_numbers(one: int, op: cst.BaseCompOp, other: int) -> bool | None:
    for kind, compare in (
        (cst.Equal, operator.eq),
        (cst.NotEqual, operator.ne),
        (cst.GreaterThan, operator.gt),
        (cst.GreaterThanEqual, operator.ge),
        (cst.LessThan, operator.lt),
        (cst.LessThanEqual, operator.le),
    ):
        if isinstance(op, kind):
            return bool(compare(one, other))
    return None


def _bound(run: Run, node: cst.Comparison, origin: str, op: cst.BaseCompOp, number: int) -> Value:
    """A comparison with an integer as a ">" condition, so that related comparisons agree."""
    name = run.text(node.left)
    if isinstance(op, cst.GreaterThan):
        return Condition(f"{origin} > {number}", run.text(node), False, origin, ">", number)
    if isinstance(op, cst.GreaterThanEqual):
        return Condition(f"{origin} > {number - 1}", run.text(node), False, origin, ">", number - 1)
    if isinstance(op, cst.LessThanEqual):
        return Condition(f"{origin} > {number}", f"{name} > {number}", True, origin, ">", number)
    if isinstance(op, cst.LessThan):
        text = f"{name} >= {number}"
        return Condition(f"{origin} > {number - 1}", text, True, origin, ">", number - 1)
    return Condition(run.text(node), run.text(node))


def _positive_text(run: Run, node: cst.Comparison) -> str:
    text = run.text(node)
    for old, new in ((" is not ", " is "), (" not in ", " in "), ("!=", "==")):
        if old in text:
            return text.replace(old, new, 1)
    return text

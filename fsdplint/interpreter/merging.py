"""Joining the values of several ranks, branches or iterations into one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fsdplint.interpreter import rank_elements
from fsdplint.interpreter.leaves import leaves
from fsdplint.interpreter.one_rank_dicts import join_with_empty
from fsdplint.interpreter.random_functions import may_be_random
from fsdplint.interpreter.ranks import is_distinct
from fsdplint.interpreter.scalars import is_one
from fsdplint.interpreter.torch_values import (
    HeldAtTimes,
    LoaderValue,
    ModulesOf,
    ParametersOf,
    RankChoice,
    RankSide,
    RankTest,
    ShardTensor,
    StateValue,
    TensorValue,
)
from fsdplint.interpreter.turn_tests import chosen_at_times, makes_context, with_condition
from fsdplint.interpreter.values import (
    Bound,
    Condition,
    Const,
    Context,
    Dict,
    Function,
    GeneratorContext,
    Instance,
    Lazy,
    LibraryObject,
    Method,
    ModuleValue,
    OptimizerValue,
    Partial,
    RankLocal,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import Layout
from fsdplint.trace.predicates import Predicate, negated
from fsdplint.trace.queries.wrappers import SHARDING


def join_by_rank(test: RankTest | None, one: Value | None, two: Value | None) -> Value:
    """Join `one`, the value on the ranks where the test holds, with `two` of the other ranks."""
    one = one if one is not None else Const(None)
    two = two if two is not None else Const(None)
    one, two = _as_number(one, two), _as_number(two, one)
    joined = _join_tuples(one, two, partial(join_by_rank, test))
    if joined is not None:
        return joined
    if (
        test is not None
        and isinstance(one, Const)
        and isinstance(two, Const)
        and isinstance(one.value, bool)
        and bool(one.value) != bool(two.value)
    ):
        if one.value:
            return test
        return test.negate()
    held = join_with_empty(test, one, two)
    if held is not None:
        return held
    if matters(one) or matters(two):
        return _loader_of_side(test, one, two) or _of_side(test, one, two) or _choose(one, two)
    if isinstance(one, Const) and isinstance(two, Const) and one.value == two.value:
        return one
    if one is two:
        return one
    distinct = is_distinct(one) and is_distinct(two)
    return RankChoice(test=test, one=one, two=two, by_rank=True, distinct=distinct)


def _as_number(value: Value, other: Value) -> Value:
    """A value that is unknown if it is an entry of a state in the place of a number."""
    entry = isinstance(value, StateValue) and value.tensor
    number = isinstance(other, Const) and type(other.value) in (int, float)
    return Unknown() if entry and number else value


def _join_tuples(one: Value, two: Value, join: Callable[[Value, Value], Value]) -> Value | None:
    """Join two tuples of one length element by element; None if the values are anything else."""
    if not isinstance(one, Sequence) or not isinstance(two, Sequence):
        return None
    if one.open or two.open or not one.kind == two.kind == "tuple":
        return None
    if len(one.items) != len(two.items):
        return None
    return replace(one, items=list(map(join, one.items, two.items)), length=None)


def _loader_of_side(test: RankTest | None, one: Value, two: Value) -> Value | None:
    """The loader that only one side has; None if it is not certain that the other has nothing."""
    for loader, other, holds in ((one, two, True), (two, one, False)):
        if test is not None and isinstance(loader, LoaderValue) and _is_nothing(other):
            return replace(loader, only_on=RankSide(test, holds))
    return None


def _of_side(test: RankTest | None, one: Value, two: Value) -> Value | None:
    """A value that only one side has while the other has none, or one of two that have code."""
    if test is None:
        return None
    for held, other, holds in ((one, two, True), (two, one, False)):
        if isinstance(held, Sequence) and isinstance(other, Sequence) and _is_nothing(other):
            return rank_elements.list_of_side(RankSide(test, holds), held)
    both = isinstance(one, _OBJECTS) and isinstance(two, _OBJECTS)
    if is_none(one) == is_none(two) and not both:
        return None
    held = two if is_none(one) else one
    return RankChoice(held=held, test=test, one=one, two=two, by_rank=True)


def _is_nothing(value: Value) -> bool:
    return is_none(value) or (isinstance(value, Sequence) and not value.items and not value.open)


def join_returned(
    test: RankTest | RankLocal | Predicate | None, one: Value | None, two: Value | None
) -> Value:
    """Join `one`, returned where a test holds, with `two`, returned elsewhere.

    test: a test of the rank or of its data; a predicate or None for a test that varies else.
    """
    if isinstance(test, RankTest):
        return join_by_rank(test, one, two)
    one, two = one or Const(None), two or Const(None)
    if isinstance(test, RankLocal):
        return join_by_data(one, two, test)
    held = _held_at_times(one, two, test)
    return held or with_condition(test, _join_varying(one, two), one, two)


def _join_varying(one: Value, two: Value) -> Value:
    """Join two values between which something chooses that is different in each turn."""
    joined = _join_tuples(one, two, _join_varying)
    if joined is not None:
        return joined
    if matters(one) or matters(two):
        return _choose(one, two)
    if not isinstance(one, Const | Symbol) and not isinstance(two, Const | Symbol):
        return one
    same = type(one) is type(two) and _identity(one) == _identity(two)
    return one if same else _either(one, two, _local_beside(one, two))


def _either(one: Value, two: Value, local: RankLocal | None) -> Unknown:
    """An unknown value that is one of two."""
    found = Unknown(varying=True, rank_local=local)
    found.dimensionless = is_one(one) and is_one(two)
    return found


def _local_beside(one: Value, two: Value) -> RankLocal | None:
    """What makes a value different on each rank that stands beside a constant."""
    for known, other in ((one, two), (two, one)):
        if isinstance(known, Const) and isinstance(other, Unknown | TensorValue):
            local = other.rank_local
            if local is not None and not local.agreed:
                return RankLocal(local.source, immutable=local.immutable, number=local.number)
    return None


def _identity(value: Value) -> object:
    if isinstance(value, Const):
        return type(value.value), value.value
    return value.name if isinstance(value, Symbol) else value


def join_by_data(one: Value, two: Value, local: RankLocal) -> Value:
    """Join two values between which each rank chooses by its own data."""
    joined = _join_tuples(one, two, partial(_join_elements_by_data, local))
    if joined is not None:
        return joined
    if isinstance(one, TensorValue) and isinstance(two, TensorValue):
        return replace(one, rank_local=RankLocal(local.source))
    for absent, tensor in ((one, two), (two, one)):
        if is_none(absent) and isinstance(tensor, TensorValue):
            own = tensor.rank_local or RankLocal(local.source)
            return replace(tensor, rank_local=replace(own, optional=True))
    held = _held_at_times(one, two, None)
    if held is not None:
        held.rank_local = RankLocal(local.source)
        return held
    if matters(one) or matters(two):
        return _choose(one, two)
    optional = any(is_none(a) and _is_present(b) for a, b in ((one, two), (two, one)))
    own = RankLocal(local.source, immutable=True, optional=optional)
    return _either(one, two, own)


def _join_elements_by_data(local: RankLocal, one: Value, two: Value) -> Value:
    """Join the elements of two tuples between which each rank chooses; equal ones stay."""
    same = one is two or (isinstance(one, Const) and _identity(one) == _identity(two))
    return one if same else join_by_data(one, two, local)


def _is_present(value: Value) -> bool:
    """Whether a value is certainly not None."""
    if isinstance(value, Unknown):
        return value.number or value.new_tensor or value.library.startswith("torch.")
    return not is_none(value) and isinstance(value, Const | Dict | Sequence | TensorValue)


def _held_at_times(one: Value, two: Value, test: Predicate | None) -> HeldAtTimes | None:
    """An object that there is where a test holds, or does not hold, and else None.

    one: the value where it holds.
    """
    held = two if is_none(one) else one
    if is_none(one) == is_none(two) or not isinstance(held, _OBJECTS):
        return None
    return HeldAtTimes(held=held, varying=True, term=test if held is one else negated(test))


def held_where(value: Value, test: Value | None) -> Value:
    """An object that there is where a test of a setting holds, and else None."""
    if test is None or not isinstance(value, _OBJECTS):
        return value
    return HeldAtTimes(held=value, varying=True, test=test)


def join_by_turn(one: Value, two: Value, test: Predicate | None = None) -> Value:
    """Join the values of different turns of a loop: the second one where a test holds."""
    # The value may stay in later turns, for which the test says nothing.
    return _held_at_times(two, one, None) or with_condition(test, _join_by_turn(one, two), two, one)


def _join_by_turn(one: Value, two: Value) -> Value:
    if matters(one) or matters(two):
        return _choose(two, one)
    by_rank = any(isinstance(value, Unknown) and value.by_rank for value in (one, two))
    found = Unknown(
        varying=True,
        by_rank=by_rank,
        library=library_of(one, two) or library_of(two, one),
        argument=derives_from_argument(one) or derives_from_argument(two),
        rank_local=_local_of_both(one, two) or _local_of_sum(one, two),
        distinct=is_distinct(one) and is_distinct(two),
    )
    found.dimensionless = is_one(one) and is_one(two)
    return found


def derives_from_argument(value: Value) -> bool:
    """Whether a value derives from an argument of the program; see `Unknown.argument`."""
    return isinstance(value, Unknown) and value.argument


def library_of(one: Value, other: Value) -> str:
    """The library function of a value that comes from two values; "" if unknown.

    It is the one that draws random numbers, if one does.
    """
    if not isinstance(one, Unknown) or not one.library:
        return ""
    if isinstance(other, Const):
        return one.library
    library = other.library if isinstance(other, Unknown) else ""
    return library if not library or may_be_random(library) else one.library


def _local_of_sum(start: Value, later: Value) -> RankLocal | None:
    """What makes a number different on each rank that is 0 before the turns add to it."""
    number = constant(start)
    is_zero = isinstance(number, int | float) and not isinstance(number, bool) and number == 0
    return _local_beside(start, later) if is_zero else None


def _local_of_both(one: Value, two: Value) -> RankLocal | None:
    """What makes each of two values different on each rank; None if one may be the same."""
    found = [
        value.rank_local
        for value in (one, two)
        if isinstance(value, Unknown | TensorValue)
        and value.rank_local is not None
        and not value.rank_local.agreed
    ]
    if len(found) < 2:
        return None
    return RankLocal(found[0].source, immutable=all(local.immutable for local in found))


def join_sides(one: Value, two: Value, test: Predicate | None = None) -> Value:
    """Join the sides of a conditional expression whose test differs from turn to turn."""
    held = _held_at_times(one, two, test)
    if held is not None:
        return held
    if isinstance(one, Const) and isinstance(two, Const) and _identity(one) != _identity(two):
        joined: Value = _either(one, two, None)
    else:
        joined = join_values(one, two)
    return with_condition(test, joined, one, two)


def join_values(one: Value, two: Value) -> Value:
    """Join the values of two branches or iterations.

    Of two states, prefer the one without a problem: the code that changes some tensors may change
    the others in the same way.
    """
    if isinstance(one, StateValue) and isinstance(two, StateValue):
        state = two if two.layout in (Layout.FULL, Layout.UNKNOWN) else one
        return state if one.itself == two.itself else replace(state, itself=False)
    for value, other in ((one, two), (two, one)):
        if _one_tensor(value) and isinstance(other, Unknown) and other.refined is None:
            return other
    if isinstance(one, ShardTensor) != isinstance(two, ShardTensor):
        return TensorValue("derived")  # one branch makes a plain tensor of it
    return _choose(one, two)


def _choose(one: Value, two: Value) -> Value:
    """The value that stands for two: one on which the contract depends, the first if both do.

    It is not certain that a context is the one that is entered, or a method the one that is called.
    """
    value = one if matters(one) else two
    if isinstance(value, Dict) and one is not two:
        other = two if value is one else one
        same = isinstance(other, Dict) and other.items.keys() == value.items.keys()
        value.doubtful = value.doubtful or not same
    if isinstance(value, Sequence) and one is not two:
        value.chosen = True
    if one is two:
        return value
    if makes_context(value):
        return chosen_at_times(value)
    if not isinstance(value, Context | GeneratorContext | Method):
        return value
    both = isinstance(one, GeneratorContext) and isinstance(two, GeneratorContext)
    return replace(value, certain=False) if value.certain and not both else value


_OBJECTS = (Bound, Function, Instance)  # of the program's own code
_WITHOUT_PARTS = (Const, Condition, Unknown)


def matters(value: Value | None) -> bool:
    """Whether the FSDP contract depends on a value: losing it may lose a finding."""
    return value is not None and any(map(_matters, leaves(value)))


def _matters(value: Value) -> bool:
    if isinstance(value, Unknown):
        return value.refined is not None or value.part_of is not None
    if isinstance(value, Symbol):
        return value.name.startswith("torch.") and not _is_dtype(value.name)
    return not isinstance(value, _WITHOUT_PARTS)


_DECISIVE = (
    ModuleValue, OptimizerValue, StateValue, ParametersOf, ModulesOf, Partial, Context,
    LibraryObject,
)  # fmt: skip


def decisive(value: Value | None) -> bool:
    """Whether a decision that leads to this value is worth its own configuration."""
    return value is not None and any(map(_decides, leaves(value, dicts=False)))


def _decides(value: Value) -> bool:
    if isinstance(value, Lazy):
        return decisive(value.source)
    if isinstance(value, Symbol):
        return value.name.startswith("torch.distributed")
    if isinstance(value, Const):
        return isinstance(value.value, str) and value.value in SHARDING | {"NO_SHARD"}
    return isinstance(value, _DECISIVE)


def _one_tensor(value: Value) -> bool:
    if isinstance(value, ParametersOf):
        return value.element
    if isinstance(value, ShardTensor):
        return not value.reduction
    return isinstance(value, StateValue) and value.tensor


def _is_dtype(name: str) -> bool:
    return name.count(".") == 1 and name != "torch.compile"

"""Operators: comparisons, `and`, `or`, `not`, arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import libcst as cst

from fsdplint.interpreter import (
    branch_conditions,
    collective_arguments,
    loaded_numbers,
    losses,
    own_roots,
    pending_results,
    plain_files,
    rank_factors,
    rank_means,
    tensor_marks,
)
from fsdplint.interpreter.branch_conditions import Truth
from fsdplint.interpreter.builtin_types import union_of_classes
from fsdplint.interpreter.comparisons import compare
from fsdplint.interpreter.decided_values import with_keys
from fsdplint.interpreter.dispatch import evaluates
from fsdplint.interpreter.iteration import concatenate, is_list_of_parameters
from fsdplint.interpreter.long_run import note_operation
from fsdplint.interpreter.merging import derives_from_argument, library_of, matters
from fsdplint.interpreter.mesh_positions import position_of
from fsdplint.interpreter.models import mixed_operations, tensors
from fsdplint.interpreter.own_lengths import own_length
from fsdplint.interpreter.rank_local import derive_rank_local, local_of, own_truth
from fsdplint.interpreter.rank_tests import is_zero
from fsdplint.interpreter.ranks import depends_on_process, depends_on_rank, is_distinct
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.scalars import is_dimensionless, is_number
from fsdplint.interpreter.shared_draws import added_to_rank
from fsdplint.interpreter.templates import fill_template, template_of
from fsdplint.interpreter.torch_values import (
    NameTest,
    ParametersOf,
    RankTest,
    RankValue,
    TensorValue,
    derived,
)
from fsdplint.interpreter.turn_tests import (
    boolean_predicate,
    number_of_operation,
    predicate_of,
)
from fsdplint.interpreter.values import (
    MAX_BITS,
    MAX_ELEMENTS,
    Condition,
    Const,
    Dict,
    RankLocal,
    Sequence,
    Template,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace.predicates import negated


@evaluates(cst.Comparison)
def eval_comparison(run: Run, node: cst.Comparison) -> Value:
    return compare(run, node)


@evaluates(cst.BooleanOperation)
def eval_boolean_operation(run: Run, node: cst.BooleanOperation) -> Value:
    """`a or b` and `a and b` return an operand; of two tests, a test."""
    left = run.eval(node.left)
    is_and = isinstance(node.operator, cst.And)
    if isinstance(left, Const):
        return run.eval(node.right) if bool(left.value) == is_and else left
    if isinstance(left, RankTest | RankValue | Condition):
        verdict = branch_conditions.truth_of(run, left, node.left, True)
        return _boolean_value(run, left, verdict, node, is_and)
    if isinstance(left, Unknown):
        right = run.eval(node.right)
        if isinstance(right, Const) and right.value is (not is_and):
            return right  # `unknown and False` is false
        if is_and and isinstance(left, NameTest):
            return Unknown(varying=True, created_at=run.site(node))
        if isinstance(right, RankValue) and not is_and:
            return right  # `settings.rank_number or dist.get_rank()`
        if isinstance(right, RankTest):
            return right if is_and else left
        if local_of(left) is not None or local_of(right) is not None:
            return Unknown(varying=True, rank_local=derive_rank_local(left, right))
        if matters(right) or matters(left) or not isinstance(right, Unknown):
            return right if matters(right) else left
        if _is_setting(left) and _is_setting(right) and left.origin != right.origin:
            holds = branch_conditions.truth_of(run, left, node.left, True).outcome is Truth.TRUE
            return right if holds == is_and else left  # so that tests of it agree with both
        return replace(
            left, term=boolean_predicate(is_and, predicate_of(left), predicate_of(right))
        )
    return run.eval(node.right) if is_and else left


def _is_setting(value: Unknown) -> bool:
    """Whether the truth of a value is a decision: it is the same in the whole run."""
    return bool(value.origin) and not (value.differs or value.by_rank or value.by_process)


def _boolean_value(
    run: Run,
    value: Value,
    left: branch_conditions.Verdict,
    node: cst.BooleanOperation,
    is_and: bool,
) -> Value:
    if left.outcome in {Truth.TRUE, Truth.FALSE}:
        if (left.outcome is Truth.TRUE) != is_and:
            return with_keys(Const(not is_and), left.keys)
        with run.under_guards(left.guards):
            return with_keys(run.eval(node.right), left.keys)
    guards = list(left.guards)
    if left.rank_test is not None:
        guards.append((branch_conditions.rank_guard(run, node.left, left.rank_test, is_and), ""))
    with run.under_guards(guards):
        right = run.eval(node.right)
    if isinstance(value, RankValue) and not is_and and _is_rank(right, value.scope):
        return value
    if isinstance(right, Const) and bool(right.value) != is_and:
        return right
    return left.rank_test if left.rank_test is not None else Unknown(varying=True)


def _is_rank(other: Value, scope: str) -> bool:
    """Whether `rank or other` is the rank: `other` is the rank too, or 0."""
    if isinstance(other, Const):
        return other.value in (0, "0") and other.value is not False
    return isinstance(other, RankValue) and other.scope == scope


def _is_empty(value: Sequence | Dict) -> Value:
    own = own_length(value) if isinstance(value, Sequence) else None
    if own is not None:
        return Unknown(varying=True, own_number=own)
    if value.open and not value.items:
        return Unknown()
    return Const(not value.items)


@evaluates(cst.UnaryOperation)
def eval_unary_operation(run: Run, node: cst.UnaryOperation) -> Value:
    value = run.eval(node.expression)
    if isinstance(node.operator, cst.Not):
        if isinstance(value, Const):
            return Const(not value.value)
        if isinstance(value, RankTest):
            return value.negate()
        if isinstance(value, RankValue):
            return is_zero(value)
        if isinstance(value, Condition):
            return Condition(
                value.key,
                value.text,
                not value.negated,
                value.subject,
                value.relation,
                value.operand,
                predicate=value.predicate,
                with_fsdp2=value.with_fsdp2,
            )
        if isinstance(value, Sequence | Dict):
            return _is_empty(value)
        if isinstance(value, Unknown | TensorValue) and derive_rank_local(value) is not None:
            own = own_truth(value) and derive_rank_local(value)
            return Unknown(varying=True, rank_local=own)
        if isinstance(value, Unknown) and value.refined is None and not value.varying:
            made = branch_conditions.condition(run, value, node.expression)
            made.negated = not made.negated
            return made
        if isinstance(value, TensorValue):
            return Unknown(varying=True)
        if isinstance(value, NameTest):
            return Unknown(varying=True, created_at=run.site(node))
        if isinstance(value, Unknown) and value.refined is None:
            return replace(value, term=negated(predicate_of(value)))
        return value if isinstance(value, Unknown) else Const(False)
    if isinstance(value, Const) and isinstance(node.operator, cst.Minus):
        return Const(-value.value) if isinstance(value.value, int | float) else Unknown()
    return value


@evaluates(cst.BinaryOperation)
def eval_binary_operation(run: Run, node: cst.BinaryOperation) -> Value:
    left, right = run.eval(node.left), run.eval(node.right)
    result = arithmetic(run, left, right, node.operator, node)
    if isinstance(node.operator, cst.Divide):
        plain_files.note_divided(result, left)
    return result


_OPERATIONS: dict[type[cst.BaseBinaryOp], str] = {
    cst.MatrixMultiply: "matmul",
    cst.Multiply: "mul",
    cst.Divide: "div",
    cst.Add: "add",
}


def arithmetic(
    run: Run,
    left: Value,
    right: Value,
    op: cst.BaseBinaryOp | None = None,
    node: cst.CSTNode | None = None,
) -> Value:
    if run.pending and node is not None:
        pending_results.note_read(run, "operator", [left, right], node)
    result = _arithmetic(run, left, right, op, node)
    if run.replaced_numbers:
        loaded_numbers.note_result(run, left, right, result)
    if run.has_own_data and isinstance(op, cst.Multiply):
        losses.note_product(run, left, right)
    if isinstance(constant(left), str):
        rank_means.note_shown(run, right)  # "loss %s" % loss
    elif tensor_marks.has_marks(run):
        operation = _OPERATIONS.get(type(op), "other") if op is not None else "other"
        tensor_marks.note_operation(run, operation, [left, right], result)
        if run.own_gradients and isinstance(op, cst.Power):
            own_roots.note_operation(run, "pow", [left, right], result)
    if isinstance(result, Unknown | TensorValue) and result is not left and result is not right:
        result.number = is_number(left) and is_number(right)
    if isinstance(result, Unknown) and result is not left and result is not right:
        result.present = True
        note_operation(run, result, left, op, right)
        rank_factors.note_operation(run, left, op, right, result)
    return result


def _arithmetic(
    run: Run, left: Value, right: Value, op: cst.BaseBinaryOp | None, node: cst.CSTNode | None
) -> Value:
    if isinstance(left, Const) and isinstance(right, Const) and op is not None:
        return _fold_numbers(op, left, right)
    if isinstance(op, cst.Modulo) and _divides_counter(left, right, node):
        return Const(0)
    if isinstance(left, Sequence) and isinstance(right, Sequence):
        if isinstance(op, cst.BitAnd | cst.Subtract | cst.BitXor):
            constants = _set_of_constants(left, right, op)
            if constants is not None:
                return constants
        result = Sequence(list(left.items), left.kind, left.open or right.open)
        result.extend(right.items)
        return result
    if isinstance(op, cst.BitOr):
        union = union_of_classes(left, right)
        if union is not None:
            return union
    if isinstance(op, cst.Add | cst.BitOr):
        if is_list_of_parameters(left) or is_list_of_parameters(right):
            return concatenate(run, left, right)
    if isinstance(left, Dict) and isinstance(right, Dict) and isinstance(op, cst.BitOr):
        merged = Dict()
        merged.take(left)
        merged.take(right)
        return merged
    if isinstance(left, Sequence) and isinstance(op, cst.Multiply):
        repeated = _repeat(left, right)
        collective_arguments.note_repeated(run, repeated, left.items)
        return repeated
    if isinstance(left, RankValue) and isinstance(op, cst.FloorDivide) and constant(right) == 1:
        return left
    if isinstance(left, RankValue) and isinstance(op, cst.Modulo):
        return RankValue("group")
    of_shards = tensors.combine(left, right)
    if of_shards is not None:
        of_shards.rank_local = of_shards.rank_local or derive_rank_local(left, right)
        return of_shards
    if isinstance(op, cst.MatrixMultiply) and node is not None:
        mixed_operations.note_computation(run, "matmul", [left, right], node)
    for value in (left, right):
        if isinstance(value, TensorValue):
            other = right if value is left else left
            commutes = value is left or isinstance(op, cst.Multiply)
            made = losses.scale(value, op if commutes else None, other)
            made.rank_local = derive_rank_local(left, right)
            return made
    if isinstance(left, ParametersOf) and isinstance(right, ParametersOf) and node is not None:
        mixed_operations.note_mixed(run, "arithmetic", [left, right], node)
    for value in (left, right):
        if isinstance(value, ParametersOf):
            return derived(value, partial=run.ranks().partial)
    varying = any(isinstance(v, Unknown) and v.varying for v in (left, right))
    term = number_of_operation(left, op, right) if op is not None else None
    by_rank = depends_on_rank(left) or depends_on_rank(right)
    origin = run.text(node) if node is not None and not varying else ""
    library = library_of(left, right) or library_of(right, left)
    computed = Unknown(
        origin=origin,
        varying=varying,
        by_rank=by_rank,
        by_process=depends_on_process(left) or depends_on_process(right),
        library=library,
        argument=derives_from_argument(left) or derives_from_argument(right),
        rank_local=derive_rank_local(left, right),
        own_number=_own_number(left, right),
        term=term,
        template=_template(left, op, right),
        distinct=by_rank and is_distinct_result(left, op, right),
        reciprocal=isinstance(op, cst.Divide)
        and isinstance(right, Unknown)
        and right.summed
        and constant(left) == 1,
    )
    note_position(run, left, op, right, computed)
    added = added_to_rank(run, left, op, right) if by_rank else None
    if added is not None:
        run.rank_sums[computed] = added
    computed.dimensionless = is_dimensionless(left) and is_dimensionless(right)
    return computed


def _divides_counter(left: Value, right: Value, node: cst.CSTNode | None) -> bool:
    """Whether `count % every` is 0 in each turn, because `every` is 1.

    A literal 1 is there for another reason: it cuts a number off.
    """
    literal = isinstance(node, cst.BinaryOperation) and isinstance(node.right, cst.Integer)
    return isinstance(left, Unknown) and left.varying and constant(right) == 1 and not literal


def _own_number(left: Value, right: Value) -> RankLocal | None:
    """What makes the result of `len(part) // 4` different on each rank."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Unknown) and isinstance(other, Const):
            return one.own_number
    return None


def is_distinct_result(
    left: Value, op: cst.BaseBinaryOp | cst.BaseAugOp | None, right: Value
) -> bool:
    """Whether an operation gives certainly another number on each rank.

    `position % len(tokens)` counts, too: the ranks are at different places of the data.
    """
    if is_distinct(left):
        other = right
    elif is_distinct(right) and not isinstance(op, cst.Modulo | cst.ModuloAssign):
        other = left
    else:
        return False
    if isinstance(op, cst.Modulo | cst.ModuloAssign):
        return isinstance(other, Unknown) and _is_same_on_all_ranks(other)
    return isinstance(op, _LINEAR) and _is_same_on_all_ranks(other) and constant(other) != 0


_LINEAR = (
    cst.Add, cst.Subtract, cst.Multiply, cst.AddAssign, cst.SubtractAssign, cst.MultiplyAssign,
)  # fmt: skip


def note_position(
    run: Run, left: Value, op: cst.BaseBinaryOp | cst.BaseAugOp | None, right: Value, result: Value
) -> None:
    """Note that a number is computed of the position in a mesh, and is another one at each."""
    if not isinstance(op, _LINEAR):
        return
    for one, other in ((left, right), (right, left)):
        position = position_of(run, one)
        if position is not None and _is_same_on_all_ranks(other) and constant(other) != 0:
            run.positions[result] = position


def _is_same_on_all_ranks(value: Value) -> bool:
    if isinstance(value, Const):
        return type(value.value) is int
    known = isinstance(value, Unknown) and local_of(value) is None
    return known and not depends_on_rank(value) and not depends_on_process(value)


def _template(left: Value, op: cst.BaseBinaryOp | None, right: Value) -> Template | None:
    """What is known of the text that `left + right` or `left % right` makes."""
    if isinstance(op, cst.Add):
        is_text = any(
            isinstance(one, Const) and isinstance(one.value, str)
            or isinstance(one, Unknown) and one.template is not None
            for one in (left, right)
        )  # fmt: skip
        return template_of([left, right]) if is_text else None
    if isinstance(op, cst.Modulo) and isinstance(left, Const) and isinstance(left.value, str):
        return fill_template(left.value, right.items if isinstance(right, Sequence) else [right])
    return None


def _repeat(value: Sequence, times: Value) -> Sequence:
    """`[x] * n`"""
    number = times.value if isinstance(times, Const) else None
    if type(number) is not int or value.open or len(value.items) * number > MAX_ELEMENTS:
        return Sequence(list(value.items), value.kind, True, chosen=value.chosen)
    return Sequence(value.items * number, value.kind, chosen=value.chosen)


def _set_of_constants(left: Sequence, right: Sequence, op: cst.BaseBinaryOp) -> Sequence | None:
    """`left & right` and the like of sets of constants; None for other sets."""
    if left.open or right.open:
        return None
    if not all(isinstance(item, Const) for item in (*left.items, *right.items)):
        return None
    mine = [constant(item) for item in left.items]
    theirs = [constant(item) for item in right.items]
    wanted = isinstance(op, cst.BitAnd)
    found = [one for one in mine if (one in theirs) is wanted]
    if isinstance(op, cst.BitXor):
        found += [one for one in theirs if one not in mine]
    return Sequence([Const(one) for one in found], "set")


def _is_large(value: object) -> bool:
    if isinstance(value, int):
        return value.bit_length() > MAX_BITS
    return isinstance(value, str | bytes | tuple) and len(value) > MAX_ELEMENTS


def _fold_numbers(op: cst.BaseBinaryOp, left: Const, right: Const) -> Value:
    """The constant that an operation gives, or an unknown number."""
    result = _fold(op, left.value, right.value)
    if isinstance(result, Unknown):
        result.dimensionless = is_dimensionless(left) and is_dimensionless(right)
    return result


def _fold(op: cst.BaseBinaryOp, left: Any, right: Any) -> Value:
    if _is_large(left) or _is_large(right):
        return Unknown()  # repeated operations could exceed the memory
    try:
        if isinstance(op, cst.Add):
            return Const(left + right)
        if isinstance(op, cst.Subtract):
            return Const(left - right)
        if isinstance(op, cst.Multiply) and isinstance(left, int | float):
            return Const(left * right) if isinstance(right, int | float) else Unknown()
        if isinstance(op, cst.Divide):
            return Const(left / right)
        if isinstance(op, cst.FloorDivide):
            return Const(left // right)
    except (TypeError, ZeroDivisionError, OverflowError):
        return Unknown()
    return Unknown()

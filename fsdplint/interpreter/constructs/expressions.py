"""Names, attributes, subscripts, and expressions that contain one expression."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter import (
    branch_conditions,
    gathered_rows,
    losses,
    possible_lists,
    second_order,
)
from fsdplint.interpreter.assignment import assign
from fsdplint.interpreter.attributes import read_attribute, subscript
from fsdplint.interpreter.branch_conditions import Truth, Verdict, truth
from fsdplint.interpreter.decided_values import chosen_value
from fsdplint.interpreter.dispatch import evaluates
from fsdplint.interpreter.merging import decisive, join_by_data, join_by_rank, join_sides
from fsdplint.interpreter.mesh_positions import position_of
from fsdplint.interpreter.models.module_paths import name_at, slice_of
from fsdplint.interpreter.module_attributes import WRAPPER_ATTRIBUTES, lacks_wrapper_attribute
from fsdplint.interpreter.own_sizes import part_of_tensor
from fsdplint.interpreter.rank_local import (
    data_at,
    derive_rank_local,
    elements_of_part,
    is_batch,
    is_global_rank,
    local_of,
    own_data,
)
from fsdplint.interpreter.ranks import depends_on_rank, is_distinct, value_by_name
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.shared_draws import note_selection
from fsdplint.interpreter.skipped_reductions import doubt_own_data
from fsdplint.interpreter.torch_values import (
    MeshPosition,
    ModulePath,
    ModulesOf,
    ParameterName,
    ParametersOf,
    RankChoice,
    RankValue,
    ShardTensor,
    StateValue,
    TensorValue,
)
from fsdplint.interpreter.turn_tests import with_condition
from fsdplint.interpreter.values import (
    Const,
    Function,
    LibraryObject,
    RankLocal,
    Sequence,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.source.positions import code_children
from fsdplint.trace import PickedByRank

BUILTINS = frozenset(
    "abs all any bool bytes callable classmethod delattr dict dir divmod enumerate eval "
    "exec exit filter float format frozenset getattr globals hasattr hash id input int "
    "isinstance issubclass iter len list locals map max min next object open ord pow "
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
    value = run.eval(node.value)
    if node.attr.value in WRAPPER_ATTRIBUTES and lacks_wrapper_attribute(run, value, node):
        return value  # as after a fix of this access
    return read_attribute(run, value, node.attr.value, node)


@evaluates(cst.Subscript)
def eval_subscript(run: Run, node: cst.Subscript) -> Value:
    value = run.eval(node.value)
    indices: list[Value] = []
    is_slice = by_rank = distinct = part = False
    local: RankLocal | None = None
    position: MeshPosition | None = None
    for item in node.slice:
        if isinstance(item.slice, cst.Index):
            indices.append(run.eval(item.slice.value))
            local = local or local_of(indices[-1])
        else:
            is_slice = True
            bounds = _bounds(run, item.slice, node, value)
            by_rank |= any(isinstance(bound, RankValue) for bound in bounds)
            places = (position_of(run, bound) for bound in bounds)
            position = position or next((one for one in places if one is not None), None)
            part |= _takes_every_nth(item.slice, bounds)
            distinct |= any(map(is_distinct, bounds))
            local = local or derive_rank_local(*bounds)
    note_selection(run, node, indices)
    index = indices[-1] if indices else Unknown()
    if len(indices) > 1 and isinstance(value, LibraryObject):
        index = Sequence(indices, "tuple")
    if isinstance(value, ShardTensor):
        return TensorValue("derived", value.modules)
    if by_rank and isinstance(value, Unknown) and value.part_of is None:
        own = own_data(run, run.site(node), counts=True, part=part)
        return replace(value, parts={}, rank_local=own)
    if by_rank and isinstance(value, Sequence) and not run.decisions.single_rank:
        own = own_data(run, run.site(node), counts=True, part=part)
        items = elements_of_part(value, own)
        return replace(value, items=items, every=False, open=True, own_length=own, length=None)
    if position is not None and not run.decisions.single_rank:
        own = data_at(run, position, run.site(node), counts=True)
        if isinstance(value, Unknown) and value.part_of is None:
            return replace(value, parts={}, rank_local=own)
        if isinstance(value, Sequence):
            items = elements_of_part(value, own)
            return replace(value, items=items, every=False, open=True, own_length=own, length=None)
    if distinct and isinstance(value, Unknown) and value.part_of is None:
        return replace(value, parts={}, rank_local=own_data(run, run.site(node)))
    if distinct and isinstance(value, StateValue):  # a tensor in a file, since it has a slice
        return Unknown(rank_local=own_data(run, run.site(node)))
    if local is not None and isinstance(value, Unknown) and _holds_elements(value):
        if any(map(depends_on_rank, indices)):
            run.emit(PickedByRank, node)
        return replace(value, origin="", varying=True, parts={}, rank_local=RankLocal(local.source))
    if local is not None and not is_slice and _has_constants(run, value):
        return Unknown(varying=True, rank_local=RankLocal(local.source))
    if is_slice and isinstance(value, Sequence) and (value.every or value.length is not None):
        return replace(value, items=list(value.items), every=False, length=None)
    if is_slice and isinstance(value, ParameterName):
        return replace(value, of=(), each=False, parts={})
    if is_slice and isinstance(value, ParametersOf):
        return replace(value, every=False)
    if isinstance(value, ModulePath) and value.names and len(node.slice) == 1:
        return slice_of(run, value, node.slice[0].slice) if is_slice else name_at(run, value, index)
    if is_slice and isinstance(value, ModulesOf):
        return replace(value, some=True)
    if is_slice:
        return gathered_rows.part_of(run, value, part_of_tensor(run, value, node))
    element = subscript(run, value, index, node)
    second_order.note_part(run, value, element)
    losses.keep_sum_of_element(value, element)
    return gathered_rows.part_of(run, value, element)


def _holds_elements(value: Unknown) -> bool:
    """Whether the elements of an unknown value differ, if each rank takes its own."""
    return value.part_of is None and local_of(value) is None and not is_batch(value)


def _has_constants(run: Run, value: Value) -> bool:
    """Whether a list has several elements, which are constants."""
    if not isinstance(value, Sequence) or len(value.items) < 2:
        return False
    return all(isinstance(run.settle(one), Const) for one in value.items)


def _takes_every_nth(item: cst.CSTNode, bounds: list[Value]) -> bool:
    """Whether a slice is the rank's part of the whole: `data[rank::world_size]`."""
    strided = isinstance(item, cst.Slice) and item.lower is not None and item.step is not None
    return strided and is_global_rank(bounds[0])


def _bounds(run: Run, item: cst.CSTNode, node: cst.Subscript, value: Value) -> list[Value]:
    """The bounds of a slice of a value."""
    bounds = [part for part in code_children(item) if isinstance(part, cst.BaseExpression)]
    values = [run.eval(bound) for bound in bounds]
    note_selection(run, node, values)
    if any(depends_on_rank(bound) for bound in values):
        own_order = isinstance(value, Unknown) and value.own_order and is_distinct(values[0])
        own_order = own_order and local_of(value) is not None
        run.emit(PickedByRank, node, own_order=own_order)
    return values


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
        joined = possible_lists.named(run, node, one, two) or join_sides(one, two)
        value = with_condition(verdict.predicate, joined, one, two)
    if verdict.guards and decisive(value):
        with run.under_guards(verdict.guards):
            run.mark_relevant()
    return chosen_value(value, verdict.keys, begin)


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
    value = run.eval(node.value)
    assign(run, node.target, value)
    return value


@evaluates(cst.Lambda)
def eval_lambda(run: Run, node: cst.Lambda) -> Value:
    return Function(node, run.scope, run.site(node), created_at=run.site(node))


@evaluates(cst.Await)
def eval_await(run: Run, node: cst.Await) -> Value:
    return run.eval(node.expression)


@evaluates(cst.StarredElement)
def eval_starred_element(run: Run, node: cst.StarredElement) -> Value:
    return run.eval(node.value)

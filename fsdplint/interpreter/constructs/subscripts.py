"""Subscripts: elements, slices, and the parts of data that each rank takes by them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import libcst as cst

from fsdplint.interpreter import (
    amounts,
    cut_samples,
    drawn_turns,
    gathered_rows,
    local_columns,
    losses,
    own_shuffles,
    second_order,
    set_orders,
)
from fsdplint.interpreter.dispatch import evaluates
from fsdplint.interpreter.elements import subscript
from fsdplint.interpreter.exact_slices import exact_slice
from fsdplint.interpreter.list_lengths import window
from fsdplint.interpreter.mesh_positions import position_of
from fsdplint.interpreter.models.module_paths import name_at, slice_of
from fsdplint.interpreter.own_elements import element_at_own_index
from fsdplint.interpreter.own_sizes import part_of_tensor
from fsdplint.interpreter.rank_local import (
    data_at,
    derive_rank_local,
    elements_of_part,
    is_batch,
    local_of,
    own_data,
)
from fsdplint.interpreter.rank_local_calls import is_global_rank
from fsdplint.interpreter.ranks import depends_on_rank, is_distinct
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.shared_draws import note_selection
from fsdplint.interpreter.torch_values import (
    MeshPosition,
    ModulePath,
    ModulesOf,
    ParameterName,
    ParametersOf,
    RankValue,
    ShardTensor,
    StateValue,
    TensorValue,
)
from fsdplint.interpreter.unequal_turns import note_slice
from fsdplint.interpreter.values import (
    Const,
    LibraryObject,
    RankLocal,
    Sequence,
    Unknown,
    Value,
)
from fsdplint.source.positions import code_children
from fsdplint.trace import PickedByRank


@dataclass
class _Selection:
    """The indices and slices of a subscript.

    Attributes:
        indices: the values of the indices.
        is_slice: whether there is a slice.
        by_rank: whether the rank is a bound of one.
        distinct: whether a bound is another number on each rank.
        part: whether a slice is every n-th element, beginning at the rank.
        local: what makes an index or a bound different on each rank.
        position: the position in a mesh of which a bound is computed.
        bounds: those of the last slice.
    """

    indices: list[Value] = field(default_factory=list)
    is_slice: bool = False
    by_rank: bool = False
    distinct: bool = False
    part: bool = False
    local: RankLocal | None = None
    position: MeshPosition | None = None
    bounds: list[Value] = field(default_factory=list)


@evaluates(cst.Subscript)
def eval_subscript(run: Run, node: cst.Subscript) -> Value:
    value = run.eval(node.value)
    selection = _selection(run, node, value)
    found = _select(run, node, value, selection)
    if selection.is_slice:
        own_shuffles.note_slice(run, value, found)
        found = drawn_turns.drawn_slice(run, node, value, selection.bounds, found)
        cut_samples.note_slice(run, node, value, found, selection.bounds)
    one = node.slice[0].slice if len(node.slice) == 1 else None
    if isinstance(one, cst.Slice) and one.lower is not None and one.upper is not None:
        found = found if one.step is not None else window(run, value, found, selection.bounds)
    if selection.is_slice and _is_own_order(value) and isinstance(found, Unknown):
        found.own_order = True  # a part of it
    return found


def _select(run: Run, node: cst.Subscript, value: Value, selection: _Selection) -> Value:
    """What a subscript takes of a value."""
    if isinstance(value, ShardTensor):
        return TensorValue("derived", value.modules)
    own = _part_of_rank(run, node, value, selection)
    if own is not None:
        if isinstance(value, Sequence):
            note_slice(run, node, value, selection.bounds, own)
        return own
    if selection.is_slice and len(node.slice) == 1:
        exact = exact_slice(run, value, node.slice[0].slice, selection.bounds)
        if exact is not None:
            return exact
    if selection.is_slice and isinstance(value, Sequence) and value.optimizer is not None:
        return replace(value, optimizer=None)  # a copy of the list with the same groups
    if selection.is_slice and isinstance(value, Sequence):
        if value.every or value.length is not None or value in run.turns:
            return replace(value, items=list(value.items), every=False, length=None)
    if selection.is_slice and isinstance(value, ParameterName):
        return replace(value, of=(), each=False, parts={})
    if selection.is_slice and isinstance(value, ParametersOf):
        return replace(value, every=False)
    index = selection.indices[-1] if selection.indices else Unknown()
    if len(selection.indices) > 1 and isinstance(value, LibraryObject):
        index = Sequence(selection.indices, "tuple")
    if isinstance(value, ModulePath) and value.names and len(node.slice) == 1:
        if selection.is_slice:
            return slice_of(run, value, node.slice[0].slice)
        return name_at(run, value, index)
    if selection.is_slice and isinstance(value, ModulesOf):
        return replace(value, some=True)
    if selection.is_slice:
        part = _own_name(run, part_of_tensor(run, value, node), node)
        local_columns.note_rows(run, value, node, part)
        return gathered_rows.part_of(run, value, part)
    element = subscript(run, value, index, node)
    second_order.note_part(run, value, element)
    losses.keep_sum_of_element(value, element)
    return gathered_rows.part_of(run, value, element)


def _own_name(run: Run, part: Value, node: cst.Subscript) -> Value:
    """A part of a setting, which is another value than the whole: `config.sizes[1:]`."""
    if not isinstance(part, Unknown) or not part.origin or part.differs or part.part_of is not None:
        return part
    bounds = ", ".join(run.text(one.slice) for one in node.slice)
    return replace(part, origin=f"{part.origin}[{bounds}]", parts={})


def _selection(run: Run, node: cst.Subscript, value: Value) -> _Selection:
    found = _Selection()
    for item in node.slice:
        if isinstance(item.slice, cst.Index):
            found.indices.append(run.eval(item.slice.value))
            found.local = found.local or local_of(found.indices[-1])
            if _is_own_order(value) and _is_at_rank(run, found.indices[-1]):
                run.emit(PickedByRank, node, own_order=True)
            continue
        found.is_slice = True
        bounds = found.bounds = _bounds(run, item.slice, node, value)
        places = (position_of(run, bound) for bound in bounds)
        found.by_rank |= any(isinstance(bound, RankValue) for bound in bounds)
        found.position = found.position or next((one for one in places if one is not None), None)
        found.part |= _takes_every_nth(item.slice, bounds)
        found.distinct |= any(map(is_distinct, bounds))
        found.local = found.local or derive_rank_local(*bounds)
    note_selection(run, node, found.indices)
    return found


def _part_of_rank(
    run: Run, node: cst.Subscript, value: Value, selection: _Selection
) -> Value | None:
    """The part of some data that this rank takes; None if all ranks take the same."""
    site = run.site(node)
    several = not run.decisions.single_rank
    if selection.by_rank and selection.is_slice:
        set_orders.note_part(run, node, value)
    if selection.by_rank and (_is_whole(value) or (isinstance(value, Sequence) and several)):
        return _take_elements(value, own_data(run, site, counts=True, part=selection.part))
    if selection.position is not None and several:
        if isinstance(value, Sequence) or _is_whole(value):
            if _takes_all(node.slice[0].slice):
                run.within_samples.add(site)
            return _take_elements(value, data_at(run, selection.position, site, counts=True))
    if selection.distinct and isinstance(value, Unknown) and _is_whole(value):
        return replace(value, parts={}, rank_local=own_data(run, site))
    if selection.distinct and isinstance(value, StateValue):  # a tensor in a file: it has a slice
        return Unknown(rank_local=own_data(run, site))
    local = selection.local
    if local is not None and isinstance(value, Unknown) and _holds_elements(value):
        if any(map(depends_on_rank, selection.indices)):
            run.emit(PickedByRank, node)
        return replace(value, origin="", varying=True, parts={}, rank_local=RankLocal(local.source))
    if local is not None and not selection.is_slice and _has_constants(run, value):
        return Unknown(varying=True, rank_local=RankLocal(local.source))
    if selection.is_slice or len(selection.indices) != 1:
        return None
    chosen = _chosen_by_mask(run, value, selection.indices[0])
    if chosen is not None:
        return chosen
    place = position_of(run, selection.indices[0])
    if place is not None and several and value in run.chunks:
        run.within_samples.add(site)
        return Unknown(varying=True, rank_local=data_at(run, place, site))
    if local is None and several and is_distinct(selection.indices[0]):
        local = RankLocal(site)
    return element_at_own_index(run, value, local) if local is not None else None


def _chosen_by_mask(run: Run, value: Value, index: Value) -> Value | None:
    """The elements that a mask of the rank's own data chooses: `labels[labels != -100]`.

    None if the index is no such mask.
    """
    local = local_of(index)
    if local is None or not amounts.amount_of(run, index).marks_share:
        return None
    own = RankLocal(local.source, counts=True, selected=True)
    if isinstance(value, TensorValue):
        return TensorValue("derived", value.modules, rank_local=own)
    return Unknown(varying=True, rank_local=own) if isinstance(value, Unknown) else None


def _is_whole(value: Value) -> bool:
    """Whether a value is unknown data, and no part of a module."""
    return isinstance(value, Unknown) and value.part_of is None


def _take_elements(value: Value, own: RankLocal) -> Value:
    """The part of data that the rank takes. own: where it takes it."""
    if isinstance(value, Sequence):
        items = elements_of_part(value, own)
        return replace(value, items=items, every=False, open=True, own_length=own, length=None)
    assert isinstance(value, Unknown)
    return replace(value, parts={}, rank_local=own)


def _holds_elements(value: Unknown) -> bool:
    """Whether the elements of an unknown value differ, if each rank takes its own."""
    return value.part_of is None and local_of(value) is None and not is_batch(value)


def _has_constants(run: Run, value: Value) -> bool:
    """Whether a list has several elements, which are constants."""
    if not isinstance(value, Sequence) or len(value.items) < 2:
        return False
    return all(isinstance(run.settle(one), Const) for one in value.items)


def _takes_all(item: cst.CSTNode) -> bool:
    """Whether a slice has no bounds: `tokens[:, begin:end]` takes a part of each sample."""
    return isinstance(item, cst.Slice) and item.lower is None and item.upper is None


def _takes_every_nth(item: cst.CSTNode, bounds: list[Value]) -> bool:
    """Whether a slice is the rank's part of the whole: `data[rank::world_size]`."""
    strided = isinstance(item, cst.Slice) and item.lower is not None and item.step is not None
    return strided and is_global_rank(bounds[0])


def _bounds(run: Run, item: cst.CSTNode, node: cst.Subscript, value: Value) -> list[Value]:
    """The bounds of a slice of a value."""
    bounds = [part for part in code_children(item) if isinstance(part, cst.BaseExpression)]
    values = [run.eval(bound) for bound in bounds]
    note_selection(run, node, values)
    own_order = _is_own_order(value) and bool(values) and _is_at_rank(run, values[0])
    if own_order or any(depends_on_rank(bound) for bound in values):
        run.emit(PickedByRank, node, own_order=own_order)
    return values


def _is_own_order(value: Value) -> bool:
    """Whether a value is certainly a random order that each rank draws for itself."""
    return isinstance(value, Unknown) and value.own_order and local_of(value) is not None


def _is_at_rank(run: Run, index: Value) -> bool:
    """Whether an index is the number of the rank, or its position in a mesh, perhaps added to a
    place of the data."""
    if run.decisions.single_rank:
        return False
    if is_distinct(index) or index in run.rank_sums or position_of(run, index) is not None:
        return True
    local = local_of(index)
    return local is not None and local.position

"""Values that each rank computes from its own data, so that a test of one differs between ranks.

The data of a rank are the batches that a sampler or a slice gives to it, its clock, and random
numbers that torch draws after each rank has set a seed of its own. A value is
rank-local only if that is certain: a library function keeps it if it computes a number or tensor
without communication, and every unknown function loses it. A collective clears it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.own_lengths import own_length
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    LoaderValue,
    MeshPosition,
    RankChoice,
    RankValue,
    TensorValue,
)
from fsdplint.interpreter.values import (
    Dict,
    LibraryObject,
    RankLocal,
    Sequence,
    Unknown,
    Value,
)
from fsdplint.source.source import NodeSite
from fsdplint.trace import Split

MAX_DEPTH = 2  # of nested lists and dicts
MAX_ITEMS = 8  # of a list that are looked at, from its end
# Functions and methods of which the result does not depend on the elements of a tensor.
STRUCTURE = frozenset(
    "device dim dtype element_size get_device is_contiguous is_cuda is_floating_point is_tensor "
    "items keys layout nbytes ndim ndimension nelement numel requires_grad result_type shape size "
    "stride".split()
)
NEW_VALUES = frozenset("empty full new_empty new_full new_ones new_zeros ones zeros".split())


def local_of(value: Value | None, depth: int = 0) -> RankLocal | None:
    """What makes a value, or an element of it, different on each rank; None if nothing certain."""
    if isinstance(value, Unknown | TensorValue):
        local = value.rank_local or _of_elements(value) or _of_choice(value, depth)
        return local if local is not None and not local.agreed else None
    if depth > MAX_DEPTH:
        return None
    found = (local_of(part, depth + 1) for part in _parts(value))
    return next((local for local in found if local is not None), None)


def _of_choice(value: Unknown | TensorValue, depth: int) -> RankLocal | None:
    """What makes one of two values different on each rank between which a test of the rank chooses:
    the other one, on the other ranks, is not the same."""
    if not isinstance(value, RankChoice) or value.agreed or value.test is None:
        return None
    if depth > MAX_DEPTH:
        return None
    return local_of(value.one, depth + 1) or local_of(value.two, depth + 1)


def _of_elements(value: Unknown | TensorValue) -> RankLocal | None:
    """What makes elements of a new tensor different on each rank: `sums[0] += loss`."""
    library, _, name = value.library.rpartition(".") if isinstance(value, Unknown) else ("", "", "")
    if library != "torch" or not (name in NEW_VALUES or name == "tensor"):
        return None
    assert isinstance(value, Unknown)
    elements = [part for key, part in value.parts.items() if key.startswith("[")]
    return next((local for one in elements if (local := local_of(one)) is not None), None)


def _parts(value: Value | None) -> Iterable[Value]:
    if isinstance(value, Sequence):
        return value.items[-MAX_ITEMS:]
    if isinstance(value, Dict):
        return list(value.items.values())[-MAX_ITEMS:]
    if isinstance(value, LibraryObject) and value.name.startswith("torch.utils.data."):
        return value.args.values()
    return ()


def of_every_element(value: Dict) -> RankLocal | None:
    """What makes an element of a dict different on each rank, whichever it is."""
    if value.open and value.rest_local is not None:
        return value.rest_local
    found = [local_of(item) for item in value.items.values()]
    return found[0] if found and value.open and None not in found else None


def derive_rank_local(*values: Value | None) -> RankLocal | None:
    """What makes a new value different on each rank that is computed from these."""
    found = [local for value in values if (local := local_of(value)) is not None]
    if not found:
        return None
    return RankLocal(
        found[0].source,
        immutable=all(local.immutable for local in found),
        part=any(local.part for local in found),
        position=all(local.position for local in found),
        number=all(map(_is_number, found)),
    )


def length_of_selection(local: RankLocal | None) -> RankLocal | None:
    """What makes the number of elements different on each rank, if the data choose them."""
    if local is None or not local.selected:
        return None
    return RankLocal(local.source, immutable=True)


def own_number_of(value: Value | None) -> RankLocal | None:
    """What makes a value different on each rank, if it certainly is one number for many elements.

    A tensor with an element for each one that it is multiplied by, such as a mask, is none, and
    numbers that derive from the rank alone may be the elements of one.
    """
    local = local_of(value)
    if local is None or _is_number(local):
        return local
    is_loss = isinstance(value, TensorValue) and value.source == "output"
    return local if is_loss else None


def _is_number(local: RankLocal) -> bool:
    return local.number or (local.immutable and not local.position)


def own_of_each_rank(run: Run, *values: Value | None) -> NodeSite | None:
    """Where each of all ranks certainly gets data of its own from which values are computed.

    None if ranks may get the same, such as those of one tensor parallel group.
    """
    for value in values:
        local = local_of(value)
        if local is not None and (local.part or local.source in run.of_each_rank):
            return local.source
    return None


def read_from(value: Unknown | TensorValue, name: str) -> RankLocal | None:
    """What makes an attribute or element of a value different on each rank."""
    return None if name in STRUCTURE else value.rank_local


def own_data(
    run: Run,
    source: NodeSite,
    *,
    immutable: bool = False,
    counts: bool = False,
    part: bool = False,
    position: bool = False,
) -> RankLocal:
    """Data that each rank gets for itself at a place."""
    run.has_own_data = True
    return RankLocal(source, immutable, counts=counts, part=part, position=position)


def data_at(run: Run, at: MeshPosition, source: NodeSite, **marks: bool) -> RankLocal:
    """Data that the rank gets because of its position in a mesh. marks: as for `own_data`."""
    run.split_by[source] = at
    return own_data(run, source, **marks)


def split_of(run: Run, *values: Value | None) -> Split | None:
    """What chose the data from which values are computed, if a position in a mesh did."""
    for value in values:
        local = local_of(value)
        at = run.split_by.get(local.source) if local is not None else None
        if local is not None and at is not None:
            within = local.source in run.within_samples
            return Split(at.mesh, at.dimension, local.source, within)
    return None


def elements_of_part(value: Sequence, part: RankLocal) -> list[Value]:
    """The elements of the part of a list that each rank takes.

    part: where it is taken. Only elements that stand for others, too, certainly differ by rank.
    """
    if not value.open:
        return list(value.items)
    own = RankLocal(part.source, part=part.part)
    return [_of_part(item, own) for item in value.items]


def _of_part(item: Value, own: RankLocal) -> Value:
    if isinstance(item, Sequence):
        return replace(item, items=[_of_part(one, own) for one in item.items])
    plain = isinstance(item, Unknown) and not item.origin and item.part_of is None
    if plain and isinstance(item, Unknown) and local_of(item) is None:
        return replace(item, parts={}, varying=True, rank_local=own)
    return item


def of_loader(run: Run, loader: LoaderValue, node: cst.CSTNode) -> RankLocal | None:
    """What makes the batches of a loader different on each rank."""
    if run.decisions.single_rank:
        return None
    if loader.own_parts or (loader.sampler is not None and loader.sampler.splits):
        own = own_data(run, loader.created_at or run.site(node))
        if loader.position is not None:
            run.split_by[own.source] = loader.position
        if loader.over_all or (loader.sampler is not None and loader.sampler.over_all):
            run.of_each_rank.add(own.source)
        return own
    held = local_of(loader.dataset) or of_library_part(run, loader.dataset)
    return RankLocal(held.source) if held is not None else None


def of_library_part(
    run: Run, value: Value | None, element: Unknown | None = None
) -> RankLocal | None:
    """What makes elements different on each rank that a library has split: see `library_parts`.

    The element may be an object whose attributes, and whose truth, are the same on all ranks.
    """
    source = run.library_parts.get(value) if value is not None and run.library_parts else None
    if source is None:
        return None
    local = own_data(run, source)
    if element is not None:
        local.batch = element
        run.library_parts[element] = source
    return local


def batch_of(run: Run, loader: LoaderValue, node: cst.CSTNode) -> Unknown:
    """A batch of a loader."""
    local = of_loader(run, loader, node)
    if local is not None and loader.optional:
        local.optional = True
    batch = Unknown(varying=True, rank_local=local)
    if local is not None:
        local.batch = batch
        for key, dimension in loader.padded.items():
            batch.parts[key] = Unknown(varying=True, rank_local=local)
            run.padded[batch.parts[key]] = dimension
    return batch


def may_differ_between_ranks(value: Value) -> bool:
    """Whether a value is known to derive from the rank, its process or its data."""
    if isinstance(value, Unknown):
        return value.by_rank or value.by_process or local_of(value) is not None
    return isinstance(value, RankValue) or local_of(value) is not None


def is_batch(value: Value) -> bool:
    """Whether a value is a batch of a loader. Its truth only says that there is one."""
    return isinstance(value, Unknown) and (
        value.rank_local is not None and value.rank_local.batch is value
    )


def own_truth(value: Value | None) -> RankLocal | None:
    """What makes the truth of a value different on each rank; None if nothing certain.

    That of a list is its length, and not its elements.
    """
    if isinstance(value, Sequence | Dict):
        return own_length(value)
    return None if value is None or is_batch(value) else local_of(value)

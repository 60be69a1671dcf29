"""torch.utils.data: samplers, loaders and the loops over them."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import data_probes, lazy, own_shuffles, sampler_epochs
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.iteration import iterable_of
from fsdplint.interpreter.models.datasets import same_on_all_ranks
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.own_lengths import own_length
from fsdplint.interpreter.own_parts import (
    gives_held_part,
    gives_own_part,
    may_give_none,
    position_of_part,
)
from fsdplint.interpreter.rank_local import batch_of, local_of
from fsdplint.interpreter.rank_local_calls import is_global_rank
from fsdplint.interpreter.ranks import WORLD_SIZE, depends_on_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    Batches,
    GeneratorValue,
    LoaderValue,
    MeshPosition,
    MeshSize,
    RankValue,
    SamplerValue,
)
from fsdplint.interpreter.unequal_turns import note_loader
from fsdplint.interpreter.values import (
    Const,
    Instance,
    LibraryObject,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.syntax.arguments import arguments
from fsdplint.trace import (
    EpochSet,
    LoaderBuilt,
    LoaderIterated,
    LoaderLeft,
    SamplerBuilt,
)

DATA = "torch.utils.data"
_STATEFUL = "torchdata.stateful_dataloader"
_OF_ALL = {f"{DATA}.SequentialSampler", f"{DATA}.RandomSampler"}


def loader_in(value: Value) -> LoaderValue | None:
    """The DataLoader that a loop over a value runs over."""
    if isinstance(value, Batches):
        return value.loader
    return value if isinstance(value, LoaderValue) else None


def begin_pass(run: Run, loader: LoaderValue, node: cst.CSTNode, *, kept: bool = False) -> None:
    """Record that a pass over a loader begins. One that `iter` began ends here at the latest.

    kept: see `LoaderIterated`.
    """
    if run.open_pass:
        end_pass(run, run.open_pass, node)
    order = loader.order
    if order is not None and order not in run.executed_orders:
        run.executed_orders.add(order)
        sampler_epochs.begin_order(run, order)
        lazy.consume(run, iterable_of(run, order))
        sampler_epochs.note_order(run, order)
    epoch = sampler_epochs.epoch_of(run, order)
    run.emit(
        LoaderIterated,
        node,
        loader=loader.id,
        sampler=loader.sampler.id if loader.sampler is not None else None,
        same_batches=same_on_all_ranks(run, loader),
        epoch=f"{epoch.name} = {epoch.value}" if epoch is not None else "",
        epoch_setter=epoch.method if epoch is not None else "",
        kept=kept,
    )


def end_pass(run: Run, loader: str, node: cst.CSTNode) -> None:
    """Record that a pass over a loader ends."""
    if run.open_pass == loader:
        run.open_pass = ""
    run.emit(LoaderLeft, node, loader=loader)


def passes_begun(run: Run, index: int) -> list[str]:
    """The loaders of the passes that began since an event and did not end."""
    open_passes: list[str] = []
    for event in run.trace.events[index:]:
        if isinstance(event, LoaderIterated):
            open_passes.append(event.loader)
        elif isinstance(event, LoaderLeft) and event.loader in open_passes:
            open_passes.remove(event.loader)
    return open_passes


def begin_by_iter(
    run: Run, loader: LoaderValue, node: cst.CSTNode, *, kept: bool = False
) -> Batches:
    """`iter(loader)`"""
    begin_pass(run, loader, node, kept=kept)
    run.open_pass = loader.id
    return Batches(loader, begun=True, element=batch_of(run, loader, node))


@function(f"{DATA}.DistributedSampler", f"{_STATEFUL}.sampler.StatefulDistributedSampler")
def distributed_sampler(run: Run, name: str, call: Call) -> Value:
    given = call.arg(3, "shuffle")
    shuffle = constant(given) if given is not None or call.open else True
    sampler = SamplerValue(
        run.new_id("sampler"),
        splits=_splits(run, call),
        same_part=_has_constant_rank(run, call),
        over_all=_splits_over_all(run, call),
    )
    place = run.settle(call.arg(2, "rank") or Unknown())
    run.emit(
        SamplerBuilt,
        call.node,
        sampler=sampler.id,
        shuffle=shuffle if isinstance(shuffle, bool) else None,
        seed_per_rank=_differs(run, call.arg(4, "seed")),
        of_part=sampler.over_all and _is_part(run, call.arg(0, "dataset")),
        shuffled_at=own_shuffles.shuffled_at(run, call.arg(0, "dataset"))
        if sampler.splits
        else None,
        over_all=sampler.over_all,
        mesh=place.mesh if isinstance(place, MeshPosition) else "",
        dimension=place.dimension if isinstance(place, MeshPosition) else "",
    )
    dataset = call.arg(0, "dataset")
    if dataset is not None and sampler.splits:
        run.samplers.append((run.settle(dataset), sampler.id))
    return sampler


def _passed_over(run: Run, call: Call, loader: LoaderValue) -> str | None:
    """The DistributedSampler over the dataset of a loader that gets no sampler; None if none."""
    given = (call.arg(3, "sampler"), call.arg(4, "batch_sampler"))
    if call.open or loader.own_parts or loader.dataset is None or any(given):
        return None
    dataset = run.settle(loader.dataset)
    return next((sampler for of, sampler in run.samplers if of is dataset), None)


def _differs(run: Run, seed: Value | None) -> bool:
    """Whether a seed certainly differs between ranks."""
    seed = run.settle(seed) if seed is not None else None
    return seed is not None and (depends_on_rank(seed) or local_of(seed) is not None)


def _splits(run: Run, call: Call) -> bool:
    """Whether a sampler certainly gives each rank other samples."""
    rank, count = call.arg(2, "rank"), call.arg(1, "num_replicas")
    own = rank is None or is_none(rank) or isinstance(run.settle(rank), RankValue)
    given = constant(count)
    several = given is None or (isinstance(given, int) and given > 1)
    return own and several and not call.open


def _splits_over_all(run: Run, call: Call) -> bool:
    """Whether a sampler certainly gives each of all ranks its part."""
    rank, count = call.arg(2, "rank"), call.arg(1, "num_replicas")
    by_rank = rank is None or is_none(rank) or is_global_rank(run.settle(rank))
    number = run.settle(count) if count is not None else Const(None)
    return by_rank and (_is_number_of_all(number) or is_none(number)) and not call.open


def _is_part(run: Run, dataset: Value | None) -> bool:
    """Whether a dataset is certainly only the rank's part already."""
    held = run.settle(dataset or Unknown())
    local = local_of(held) or own_length(held)
    return local is not None and local.part


def _has_constant_rank(run: Run, call: Call) -> bool:
    """Whether all ranks make the sampler for the rank that a number in the program says.

    A variable may be the rank of a program that runs in one process, but not if the sampler splits
    over all ranks.
    """
    if call.open or not isinstance(call.node, cst.Call) or run.ranks().partial:
        return False
    given = arguments(call.node, ("dataset", "num_replicas", "rank"))[0].get("rank")
    if given is not None and isinstance(given.value, cst.Integer):
        return True
    rank, count = call.arg(2, "rank"), run.settle(call.arg(1, "num_replicas") or Unknown())
    return type(constant(rank)) is int and _is_number_of_all(count)


def _is_number_of_all(number: Value) -> bool:
    """Whether a value is the number of all ranks."""
    return isinstance(number, MeshSize) or (
        isinstance(number, Unknown) and number.origin == WORLD_SIZE
    )


@function(f"{DATA}.SequentialSampler", f"{DATA}.RandomSampler")
def sampler_of_all_samples(run: Run, name: str, call: Call) -> Value:
    """A sampler that does not know of ranks: what a loader makes of `shuffle=`."""
    generator = call.arg(3, "generator") if name.endswith("RandomSampler") else None
    return LibraryObject(name, {"generator": generator} if generator is not None else {}, call.open)


@function(f"{DATA}.BatchSampler")
def batch_sampler(run: Run, name: str, call: Call) -> Value:
    sampler = call.arg(0, "sampler")
    return LibraryObject(name, {"sampler": sampler} if sampler is not None else {}, call.open)


@function(f"{DATA}.DataLoader", f"{_STATEFUL}.StatefulDataLoader",
          f"{_STATEFUL}.stateful_dataloader.StatefulDataLoader")  # fmt: skip
def loader(run: Run, name: str, call: Call) -> Value:
    dataset, sampler = call.arg(0, "dataset"), call.arg(3, "sampler")
    batches = call.arg(4, "batch_sampler")
    if isinstance(batches, LibraryObject):
        sampler = batches.get("sampler")
    sampler = run.settle(sampler) if sampler is not None else None
    shuffle, generator = call.arg(2, "shuffle"), call.arg(12, "generator")
    of_all = isinstance(sampler, LibraryObject) and sampler.name in _OF_ALL and not sampler.open
    if of_all and isinstance(sampler, LibraryObject):
        shuffle = Const(sampler.name.endswith("RandomSampler"))
        generator = sampler.get("generator") or generator
    same_part = isinstance(sampler, SamplerValue) and sampler.same_part
    if same_part:
        # All ranks have its order, also where it shuffles: it has a seed of its own.
        sampler, of_all, shuffle = None, True, Const(False)
    ordered = not call.open and all(
        value is None or is_none(value)
        for value in (
            None if of_all else call.arg(3, "sampler"),
            None if of_all else batches,
            call.arg(10, "worker_init_fn"),
        )
    )
    parts = [value for value in (dataset, sampler, batches) if value is not None]
    generator = run.settle(generator) if generator is not None else None
    if generator is not None and not is_none(generator):
        ordered = ordered and isinstance(generator, GeneratorValue)
    known = constant(shuffle) if shuffle is not None and not is_none(shuffle) else False
    places = (position_of_part(run, run.settle(value)) for value in parts)
    position = next((one for one in places if one is not None), None)
    made = LoaderValue(
        run.new_id("loader"),
        sampler=sampler if isinstance(sampler, SamplerValue) else None,
        dataset=dataset,
        shuffle=known if ordered and isinstance(known, bool) else None,
        collate=call.arg(6, "collate_fn"),
        generator=generator if isinstance(generator, GeneratorValue) else None,
        position=position,
        own_parts=position is not None
        or any(
            gives_own_part(run.settle(value))
            or gives_held_part(run.settle(value))
            or _is_own_order(run.settle(value), value is dataset)
            for value in parts
        ),
        over_all=any(gives_own_part(run.settle(value), groups=False) for value in parts),
        same_part=same_part,
    )
    note_loader(run, call, made)
    facts = data_probes.collated(run, made.collate)
    made.padded = facts.padded
    made.optional = facts.optional and may_give_none(run.settle(dataset) if dataset else None)
    order = batches if isinstance(batches, Instance) else sampler
    made.order = order if isinstance(order, Instance) else None
    run.emit(
        LoaderBuilt,
        call.node,
        loader=made.id,
        sampler=made.sampler.id if made.sampler is not None else None,
        passed_over=_passed_over(run, call, made),
        picked=_pick_of(run, made.dataset),
        repeated_by_workers=_is_repeated(run, call),
    )
    return made


def _pick_of(run: Run, dataset: Value | None) -> int | None:
    """The event that picked a dataset, or what it holds, by the rank; None if there is none."""
    held = run.settle(dataset) if dataset is not None else Unknown()
    parts = held.attributes.values() if isinstance(held, Instance) else ()
    picks = (run.picks.get(run.settle(one)) for one in (held, *parts))
    return next((one for one in picks if one is not None), None)


def _is_repeated(run: Run, call: Call) -> bool:
    """Whether each of several workers certainly reads all samples of a stream."""
    workers, prepare = constant(call.arg(5, "num_workers")), call.arg(10, "worker_init_fn")
    several = isinstance(workers, int) and workers > 1
    if not several or call.open or not (prepare is None or is_none(prepare)):
        return False
    dataset = run.settle(call.arg(0, "dataset") or Unknown())
    if not isinstance(dataset, Instance) or dataset.attributes_unknown:
        return False
    if dataset.cls.has_unknown_base() or dataset.cls.library_bases() != [f"{DATA}.IterableDataset"]:
        return False
    return data_probes.repeats_in_workers(run, dataset)


def _is_own_order(value: Value, is_dataset: bool) -> bool:
    """Whether a sampler is a list of indices, or of batches of them, of each rank's own."""
    return not is_dataset and (local_of(value) or own_length(value)) is not None


@method("LoaderValue", "state_dict", "load_state_dict")
def place_in_data(run: Run, receiver: LoaderValue, name: str, call: Call) -> Value:
    """The state of torchdata's loader: how far it is."""
    return Unknown()


@method("SamplerValue", "set_epoch")
def set_epoch(run: Run, receiver: SamplerValue, name: str, call: Call) -> Value:
    epoch = constant(call.arg(0, "epoch"))
    known = epoch if isinstance(epoch, int) else None
    run.emit(EpochSet, call.node, sampler=receiver.id, epoch=known)
    return Const(None)

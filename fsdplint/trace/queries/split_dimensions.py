"""Loaders whose sampler splits the data over one of two dimensions that FSDP shards over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    Called,
    Collective,
    GradMode,
    LoaderIterated,
    MeshBuilt,
    Ranks,
    SamplerBuilt,
    Sharded,
    TensorParallel,
    Trace,
    Wrapped,
    first,
)
from fsdplint.trace.queries.data_parallelism import may_share_data
from fsdplint.trace.queries.data_passes import is_trained, out_of_sight, training_passes


@dataclass(frozen=True)
class HalfSplit:
    """A pass over data that the ranks of one dimension of the mesh share.

    Attributes:
        sampler: the sampler of the loader.
        begun: the pass.
        shard: a sharding over both dimensions.
        split: the dimension over which the sampler splits; "" if it is not known.
    """

    sampler: SamplerBuilt
    begun: LoaderIterated
    shard: Sharded
    split: str


def half_splits(trace: Trace) -> Iterator[HalfSplit]:
    """The training passes with the same data for ranks that FSDP2 shards and averages over."""
    shard = _two_dimensions(trace)
    if shard is None or not trace.complete:
        return
    for begun in training_passes(trace):
        sampler = first(e for e in trace.of(SamplerBuilt) if e.sampler == begun.sampler)
        if sampler is None or begun.ranks is not Ranks.ALL or sampler.ranks is not Ranks.ALL:
            continue
        if any(out_of_sight(trace, data, begun) for data in (begun.loader, begun.sampler)):
            continue
        if trace.producer == "runtime":
            found = begun.same_batches is True
        else:
            found = sampler.mesh == shard.whole_mesh and sampler.dimension in shard.dims
            found = found and not _rest_is_one(trace, shard, sampler.dimension)
        if found:
            yield HalfSplit(sampler, begun, shard, sampler.dimension)


def half_split_calls(trace: Trace) -> Iterator[tuple[Called, Sharded]]:
    """The training calls whose data a position in one of the two dimensions chooses."""
    shard = _two_dimensions(trace)
    if shard is None or not trace.complete:
        return
    for call in trace.after(shard, Called):
        split = call.split_by
        if (
            split is None
            or split.within_samples
            or split.mesh != shard.whole_mesh
            or split.dimension not in shard.dims
        ):
            continue
        if call.grad is not GradMode.ON or call.ranks.partial or not call.in_loop:
            continue
        if not _rest_is_one(trace, shard, split.dimension) and is_trained(trace, call):
            yield call, shard


def _two_dimensions(trace: Trace) -> Sharded | None:
    """The first sharding, if all are over the same two dimensions and nothing else uses a part."""
    shards = list(trace.of(Sharded))
    if not shards or any(True for _ in trace.of(TensorParallel, Wrapped)):
        return None
    if any(len(one.dims) != 2 or one.whole_mesh != shards[0].whole_mesh for one in shards):
        return None
    if any(map(may_share_data, shards[0].dims)):
        return None
    for event in trace.of(Collective):
        if event.api == "new_group" or event.unknown_group:
            return None  # groups of ranks that may have the same data on purpose
    return shards[0] if shards[0].whole_mesh else None


def _rest_is_one(trace: Trace, shard: Sharded, split: str) -> bool:
    """Whether the other dimension certainly has a single rank."""
    for mesh in trace.of(MeshBuilt):
        if mesh.mesh == shard.whole_mesh and len(mesh.shape) == len(mesh.dim_names):
            sizes = zip(mesh.dim_names, mesh.shape, strict=True)
            return all(size == 1 for name, size in sizes if name in shard.dims and name != split)
    return False

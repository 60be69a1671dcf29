"""Batches that differ between ranks whose gradients FSDP does not average."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    Called,
    Collective,
    GradMode,
    LoaderBuilt,
    MeshBuilt,
    SamplerBuilt,
    Sharded,
    Site,
    Split,
    TensorParallel,
    Trace,
    Wrapped,
    first,
)
from fsdplint.trace.queries.common import reduced_by_hand
from fsdplint.trace.queries.data_parallelism import may_share_data
from fsdplint.trace.queries.data_passes import exchanges_batches, is_trained, training_passes


@dataclass(frozen=True)
class Unaveraged:
    """A model whose ranks along some dimensions of the mesh train on different batches.

    Attributes:
        trained: the sampler that splits the data, or the call that gets the data.
        data: where each rank gets its data; None for a sampler.
        shard: the sharding over the other dimensions.
        dimensions: the dimensions along which nothing is averaged.
        parallel: the tensor parallelism over these dimensions; None if nothing uses them.
    """

    trained: SamplerBuilt | Called
    data: Site | None
    shard: Sharded
    dimensions: tuple[str, ...]
    parallel: TensorParallel | None


def unaveraged_batches(trace: Trace) -> Iterator[Unaveraged]:
    """The training data that differ between ranks that compute one product together, or that
    nothing averages."""
    found = _other_dimensions(trace)
    if found is None:
        return
    shards, rest = found
    parallel = first(one for one in trace.of(TensorParallel) if set(one.dims) & set(rest))
    if parallel is None and not _is_unused(trace, rest):
        return
    if any(one.splits_inputs for one in trace.of(TensorParallel)):
        return
    for trained, data, shard in _trained_on(trace, shards):
        yield Unaveraged(trained, data, shard, rest, parallel)


def unaveraged_parts(trace: Trace) -> Iterator[tuple[Called, Sharded, Split]]:
    """The training calls of a model on a part of each sample that the position in a dimension
    chooses, if nothing adds up the gradients along this dimension."""
    found = _other_dimensions(trace)
    if found is None or any(True for _ in trace.of(TensorParallel)):
        return
    shards, rest = found
    if _is_out_of_sight(trace) or _may_reduce_gradients(trace):
        return
    for call in trace.after(shards[0], Called):
        split = call.split_by
        if split is None or not split.within_samples or split.dimension not in rest:
            continue
        if split.mesh != shards[0].whole_mesh or call.grad is not GradMode.ON:
            continue
        shard = _sharding_of(trace, call, shards)
        if shard is not None and not call.ranks.partial and is_trained(trace, call):
            yield call, shard, split


def _may_reduce_gradients(trace: Trace) -> bool:
    """Whether some reduction may be one of gradients."""
    reduced = (one for one in trace.of(Collective) if "reduce" in one.api)
    return any(not one.few_elements for one in reduced)


def _other_dimensions(trace: Trace) -> tuple[list[Sharded], tuple[str, ...]] | None:
    """The shardings over the fewest dimensions, and the dimensions of the mesh that they leave out.

    None if the shardings use several meshes, if the mesh has no such dimensions, or if these may
    have a single rank.
    """
    shards = list(trace.of(Sharded))
    meshes = {one.whole_mesh for one in shards}
    if len(meshes) != 1 or "" in meshes or any(True for _ in trace.of(Wrapped)):
        return None
    if not all(one.dims for one in shards) or any(one.ranks.partial for one in shards):
        return None
    mesh = first(one for one in trace.of(MeshBuilt) if one.mesh == shards[0].whole_mesh)
    if mesh is None or len(mesh.shape) != len(mesh.dim_names) or len(list(trace.of(MeshBuilt))) > 1:
        return None
    trained = [one for one in shards if not one.frozen]
    used = min((set(one.dims) for one in trained), key=len, default=set())
    shards = [one for one in trained if used == set(one.dims)]
    sizes = dict(zip(mesh.dim_names, mesh.shape, strict=True))
    rest = tuple(name for name in sizes if name not in used)
    if not shards or not used <= sizes.keys() or not rest or any(sizes[name] == 1 for name in rest):
        return None
    return shards, rest


def _is_unused(trace: Trace, dimensions: tuple[str, ...]) -> bool:
    """Whether nothing works over some dimensions: no other parallelism, no reduction by hand."""
    if any(True for _ in trace.of(TensorParallel)) or any(map(may_share_data, dimensions)):
        return False
    if _is_out_of_sight(trace):
        return False
    return all(one.collective or one.few_elements for one in trace.of(Collective))


def _is_out_of_sight(trace: Trace) -> bool:
    """Whether something else than FSDP reduces gradients, or other code has got a model."""
    if any(info.wrapper == "ddp" for info in trace.modules.values()):
        return True
    if reduced_by_hand(trace, _sharded_parts(trace)):
        return True
    return any(trace.any_escaped(trace.family(one.module)) for one in trace.of(Sharded))


def _sharding_of(trace: Trace, call: Called, shards: list[Sharded]) -> Sharded | None:
    """The first sharding of the model that is called."""
    module = trace.unwrap(call.module)
    before = (one for one in shards if one.index < call.index)
    return first(one for one in before if trace.related(module, one.module))


def _sharded_parts(trace: Trace) -> set[str]:
    """The modules whose parameters FSDP shards, as far as it is known which ones it ignores."""
    shards = list(trace.of(Sharded))
    ignored = set(trace.submodules(*(name for one in shards for name in one.ignored)))
    return set(trace.submodules(*(one.module for one in shards))) - ignored


def _trained_on(
    trace: Trace, shards: list[Sharded]
) -> Iterator[tuple[SamplerBuilt | Called, Site | None, Sharded]]:
    """What a model is trained on, where each rank gets it, and the first sharding of the model."""
    samplers = {
        built.site: sampler
        for built in trace.of(LoaderBuilt)
        for sampler in trace.of(SamplerBuilt)
        if sampler.sampler == built.sampler
    }
    if trace.producer == "runtime":
        for begun in training_passes(trace):
            sampler = first(one for one in trace.of(SamplerBuilt) if one.sampler == begun.sampler)
            if sampler is not None and sampler.over_all and not exchanges_batches(trace, begun):
                yield sampler, None, shards[0]
        return
    for call in trace.after(shards[0], Called):
        if call.own_input is None or call.grad is not GradMode.ON or call.ranks.partial:
            continue
        shard = _sharding_of(trace, call, shards)
        if shard is None or not is_trained(trace, call):
            continue
        sampler = samplers.get(call.own_input)
        yield (call, call.own_input, shard) if sampler is None else (sampler, None, shard)

"""Ranks that compute one product or one sequence together, and train on different batches.

The position of a rank in a dimension of the mesh chooses its data, and tensor or context
parallelism goes over this dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    Called,
    ContextParallel,
    Event,
    GradMode,
    MeshBuilt,
    MeshFlattened,
    SamplerBuilt,
    Site,
    TensorParallel,
    Trace,
    first,
)
from fsdplint.trace.queries.data_passes import (
    events_in_pass,
    exchanges_batches,
    is_trained,
    training_passes,
)


@dataclass(frozen=True)
class BatchesOfGroup:
    """Training data that differ between ranks that compute together.

    Attributes:
        trained: the sampler that splits the data, or the call that gets the data.
        data: where each rank gets its data; None for a sampler.
        parallel: what makes the ranks compute together.
        dimensions: the dimensions along which they do, and have different data.
    """

    trained: SamplerBuilt | Called
    data: Site | None
    parallel: TensorParallel | ContextParallel
    dimensions: tuple[str, ...]


def batches_of_groups(trace: Trace) -> Iterator[BatchesOfGroup]:
    """The training data that a position in a dimension chooses, if its ranks compute together.

    Data of each of all ranks count for context parallelism alone: for tensor parallelism, see
    `unaveraged_batches`.
    """
    together: list[TensorParallel | ContextParallel] = [
        *trace.of(TensorParallel),
        *trace.of(ContextParallel),
    ]
    for parallel in together:
        group = _dimensions(trace, parallel.whole_mesh, parallel.dims)
        splits = isinstance(parallel, TensorParallel) and parallel.splits_inputs
        if not group or splits or parallel.ranks.partial:
            continue
        for trained, data, dimension in _split_data(trace, parallel):
            own = _dimensions(trace, parallel.whole_mesh, (dimension,)) if dimension else group
            shared = group & own
            if shared:
                yield BatchesOfGroup(trained, data, parallel, tuple(sorted(shared)))


def _dimensions(trace: Trace, mesh: str, names: tuple[str, ...]) -> set[str]:
    """The dimensions of a whole mesh that some names stand for, without those of one rank."""
    flat = {one.name: one.dims for one in trace.of(MeshFlattened) if one.mesh == mesh}
    built = first(one for one in trace.of(MeshBuilt) if one.mesh == mesh)
    if built is None or len(built.shape) != len(built.dim_names):
        return set()
    sizes = dict(zip(built.dim_names, built.shape, strict=True))
    whole = [one for name in names for one in flat.get(name, (name,))]
    return {one for one in whole if sizes.get(one, 1) != 1}


def _split_data(
    trace: Trace, parallel: TensorParallel | ContextParallel
) -> Iterator[tuple[SamplerBuilt | Called, Site | None, str]]:
    """What the trained model gets, where a rank gets it, and the dimension that chooses it.

    The dimension is "" for data of each of all ranks.
    """
    over_all = isinstance(parallel, ContextParallel)
    for begun in training_passes(trace):
        sampler = first(one for one in trace.of(SamplerBuilt) if one.sampler == begun.sampler)
        if sampler is None or not (sampler.dimension or (over_all and sampler.over_all)):
            continue
        if sampler.dimension and sampler.mesh != parallel.whole_mesh:
            continue
        computes = any(_computes(trace, one, parallel) for one in events_in_pass(trace, begun))
        if computes and not exchanges_batches(trace, begun):
            yield sampler, None, sampler.dimension
    for call in trace.of(Called):
        if call.grad is not GradMode.ON or call.ranks.partial or not is_trained(trace, call):
            continue
        if parallel.index > call.index or not _computes(trace, call, parallel):
            continue
        split = call.split_by
        if split is not None and not split.within_samples and split.mesh == parallel.whole_mesh:
            yield call, split.site, split.dimension
        elif over_all and call.own_input is not None:
            yield call, call.own_input, ""


def _computes(trace: Trace, event: Event, parallel: TensorParallel | ContextParallel) -> bool:
    """Whether an event is one of the computation in which the ranks work together."""
    if isinstance(parallel, ContextParallel):
        return isinstance(event, Called) and event.index > parallel.index
    if not isinstance(event, Called):
        return False
    return trace.related(trace.unwrap(event.module), parallel.module)

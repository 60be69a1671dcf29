"""FSDP511: see the class."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Collective,
    LoaderBuilt,
    LoaderIterated,
    LoaderLeft,
    PickedByRank,
    Prepared,
    Ranks,
    SamplerBuilt,
    Sharded,
    Trace,
    Wrapped,
    first,
)
from fsdplint.trace.queries.data_parallelism import only_data_parallel, settings
from fsdplint.trace.queries.data_passes import out_of_sight, training_passes
from fsdplint.trace.queries.split_dimensions import half_split_calls, half_splits


class EveryRankSameData(Rule):
    """Every rank trains on the same batches.

    ## What it does
    Finds a `DataLoader` that gives a sharded model the same training batches on every rank: it has no
    `DistributedSampler`, and neither its dataset nor the seed depends on the rank.

    A loader is reported only if this is certain: the dataset is a `TensorDataset`, one of torchvision or
    of Hugging Face's `datasets`, or of a class of the program that does not use the rank, or gets the same one on all
    ranks (`rank=0` by default); `collate_fn` uses neither the rank nor random numbers; the loader does not shuffle, or all ranks set the same seed, also that of its generator;
    nothing is selected by rank; and the model is sharded over a mesh of one dimension.

    A `DistributedSampler` that gets the number of all ranks and one number as the rank on all of them gives each
    rank the same part, of whatever dataset.

    A dataset that splits by `get_worker_info()` alone gives each rank the same samples: every rank has workers with
    the same numbers.

    Also finds a loader without a sampler over a dataset for which the program builds a `DistributedSampler`
    that no loader gets. Each rank then goes through the whole dataset, in whatever order.

    Also finds a `DistributedSampler` that splits over one dimension of a mesh
    (`rank=mesh["replicate"].get_local_rank()`) whose two dimensions `fully_shard` gets (HSDP). FSDP averages the
    gradients over both, so all ranks should have other samples. The same holds for data of the program's own that
    the position in one dimension chooses: by a slice, a range, the seed of a generator, or a dataset that computes with
    it. A mesh with a dimension for another kind of parallelism is not reported.

    ## Why is this bad?
    FSDP is data parallel: it averages the gradients of the ranks, so every rank should have other samples.
    With the same batches on all ranks, the average equals the gradient of one rank, and N GPUs train no
    faster than one. There is no error, and the loss looks normal. Two ranks print:

        samples on rank 0: 16, also on rank 1: 16

    Pass the loader a `DistributedSampler(dataset)` (without `shuffle=True`), and call
    `sampler.set_epoch(epoch)` at the beginning of each epoch. There is no automatic fix, because an epoch
    then has fewer steps, and the schedule of the learning rate may depend on their number.

    ## Since
    All versions.

    ## References
    - https://docs.pytorch.org/docs/stable/data.html (`torch.utils.data.distributed.DistributedSampler`)
    - https://docs.pytorch.org/tutorials/intermediate/FSDP1_tutorial.html, which uses one
    """

    code = "FSDP511"
    name = "every-rank-same-data"
    severity = Severity.WARNING
    all_configurations = True

    def check(self, trace: Trace) -> Iterable[Finding]:
        yield from self._of_one_dimension(trace)
        if _may_pick_batches(trace):
            return
        yield from self._over_one_dimension(trace)
        if not trace.complete or not only_data_parallel(trace):
            return
        halves = {found.begun.index for found in half_splits(trace)}
        for begun in training_passes(trace):
            if begun.index in halves:
                continue
            built = first(e for e in trace.of(LoaderBuilt) if e.loader == begun.loader)
            sampler = _forgotten_sampler(trace, begun, built) if built is not None else None
            if built is not None and sampler is not None:
                yield self._without_sampler(built, begun, sampler)
                continue
            if built is None or not _same_on_all_ranks(trace, begun):
                continue
            sharded = first([*trace.before(begun, Sharded), *trace.before(begun, Wrapped)])
            sharded = sharded or _prepared(trace, begun)
            if sharded is None or not settings(built) <= settings(sharded):
                continue  # perhaps only chosen in a run that is not distributed
            yield self.finding(
                built,
                "every rank gets the same batches of this loader and trains on them",
                help="Pass it `sampler=DistributedSampler(dataset)`, without `shuffle=True`, and call "
                "`sampler.set_epoch(epoch)` in each epoch.",
                because=[(begun, "trained on here")],
            )

    def _without_sampler(
        self, built: LoaderBuilt, begun: LoaderIterated, sampler: SamplerBuilt
    ) -> Finding:
        return self.finding(
            built,
            "this loader does not get the `DistributedSampler` of its dataset, so every rank trains on the "
            "whole dataset",
            help="Pass the sampler to the loader, without `shuffle=True`.",
            because=[(sampler, "no loader gets this sampler"), (begun, "trained on here")],
        )

    def _over_one_dimension(self, trace: Trace) -> Iterable[Finding]:
        for found in half_splits(trace):
            if _is_broadcast_in_pass(trace, found.begun):
                continue
            rest = [name for name in found.shard.dims if name != found.split]
            over = f"`{found.split}` alone" if found.split else "one of the dimensions"
            others = f"`{rest[0]}`" if found.split else "the other one"
            yield self.finding(
                found.sampler,
                f"this sampler splits over {over}, so the ranks along {others} train on the same batches",
                help="Split over all ranks: leave out `num_replicas` and `rank`.",
                because=[
                    (found.shard, "sharded over both dimensions"),
                    (found.begun, "trained on here"),
                ],
            )

    def _of_one_dimension(self, trace: Trace) -> Iterable[Finding]:
        seen = set()
        for call, shard in half_split_calls(trace):
            split = call.split_by
            if split is None or split.site in seen:
                continue
            seen.add(split.site)
            rest = " and ".join(f"`{name}`" for name in shard.dims if name != split.dimension)
            yield self.finding(
                call,
                f"the position in `{split.dimension}` alone chooses the data of each rank, so the ranks along {rest} "
                "train on the same batches",
                help="Choose them by the rank among all ranks: `dist.get_rank()` and `dist.get_world_size()`.",
                because=[(shard, "sharded over both dimensions")],
                site=split.site,
            )

    def concerns(self, trace: Trace, finding: Finding) -> bool:
        """Whether a trace trains on the batches of the loader of a finding.

        A trace without sharding, or with another kind of parallelism, has no finding. If its
        batches are the same on all ranks, too, it contradicts none.
        """
        found = finding.events[0]
        loaders = {
            one.loader
            for one in trace.of(LoaderBuilt)
            if one.site == found.site and one.stack == found.stack
        }
        passes = [begun for begun in training_passes(trace) if begun.loader in loaders]
        if not trace.complete or _may_pick_batches(trace):
            return bool(passes)
        return not all(_same_on_all_ranks(trace, begun) for begun in passes)


def _prepared(trace: Trace, begun: LoaderIterated) -> Prepared | None:
    """Where a framework shards a model that gets its loaders by another call.

    Lightning's Trainer makes samplers of its own.
    """
    events = (one for one in trace.before(begun, Prepared) if one.framework != "Lightning")
    return first(events)


def _may_pick_batches(trace: Trace) -> bool:
    """Whether each rank may get a part of something else than of the dataset of a loader."""
    parts = {built.picked for built in trace.of(LoaderBuilt)}
    return any(event.index not in parts for event in trace.of(PickedByRank))


def _forgotten_sampler(
    trace: Trace, begun: LoaderIterated, built: LoaderBuilt
) -> SamplerBuilt | None:
    """The sampler over the dataset of a loader that certainly nothing uses."""
    sampler = first(e for e in trace.of(SamplerBuilt) if e.sampler == built.passed_over)
    if sampler is None or built.ranks is not Ranks.ALL or begun.ranks is not Ranks.ALL:
        return None
    used = {one.sampler for one in trace.of(LoaderBuilt)}
    used |= {one.sampler for one in trace.of(LoaderIterated)}
    unseen = out_of_sight(trace, built.loader, begun) or out_of_sight(
        trace, sampler.sampler, trace.events[-1]
    )
    if sampler.sampler in used or unseen or not settings(built) <= settings(sampler):
        return None
    return sampler


def _same_on_all_ranks(trace: Trace, begun: LoaderIterated) -> bool:
    """Whether a pass certainly has the same batches on all ranks."""
    if begun.same_batches is not True:
        return False
    if begun.ranks is not Ranks.ALL or out_of_sight(trace, begun.loader, begun):
        return False
    return not _is_broadcast_in_pass(trace, begun)


def _is_broadcast_in_pass(trace: Trace, begun: LoaderIterated) -> bool:
    """Whether ranks send data to each other in a pass, so that each may get its own data."""
    for event in trace.events[begun.index + 1 :]:
        if isinstance(event, LoaderLeft) and event.loader == begun.loader:
            return False
        if not isinstance(event, Collective) or event.few_elements:
            continue  # a flag or a number is no batch
        if re.match(r"broadcast|scatter", event.api):
            return True
    return False

"""FSDP518: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, GradMode, LoaderBuilt, SamplerBuilt, Trace
from fsdplint.trace.queries.data_passes import is_trained


class DataSplitTwice(Rule):
    """A `DistributedSampler` splits a dataset that is the rank's own part already.

    ## What it does
    Finds a `DistributedSampler` over all ranks whose dataset is what this rank takes of the data: a `Subset`
    with `range(rank, n, world_size)`, a slice `data[rank::world_size]`, or `dataset.shard(world_size, rank)`.

    A check without a run also finds a model that is trained on a part of each sample which the number of the rank
    chooses (`tokens[:, rank * size : (rank + 1) * size]`, as for sequence parallelism), where each rank has samples of
    its own, such as those of a `DistributedSampler`. A batch that a collective makes the same on the ranks is fine.

    A split by the number of the machine, with a sampler over the ranks of the machine, is not reported. A
    real run shows datasets that are a `Subset`.

    ## Why is this bad?
    Each rank gets one Nth of its Nth. With two ranks, a quarter of the samples came to each rank, and half of
    them to no rank: two ranks print

        seen by any rank: 8 of 16 samples

    There is no error. An epoch has fewer steps, and the model never sees the other samples of an order
    without shuffling.

    Parts of each sample belong together if the ranks have the same samples. If they have others, the parts that the
    rank leaves out reach no rank: two ranks with a half of each of their own 4 sequences see 16 of 32 tokens.

    Pass the whole dataset to the sampler, or iterate over the part without one. For parts of each sample, give all
    ranks the same samples.

    ## Since
    All versions.

    ## References
    - https://docs.pytorch.org/docs/stable/data.html (`DistributedSampler`)
    """

    code = "FSDP518"
    name = "data-split-twice"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        used = {event.sampler for event in trace.of(LoaderBuilt)}
        seen = set()
        for event in trace.of(SamplerBuilt):
            if not event.of_part or event.sampler not in used or event.site in seen:
                continue
            if event.ranks.partial:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                "this sampler splits over the ranks what is only this rank's part of the data already",
                help="Pass the whole dataset to the sampler, or iterate over the part without it.",
            )
        for call in trace.of(Called):
            if call.cut_samples is None or call.cut_samples.site in seen or call.ranks.partial:
                continue
            if call.grad is not GradMode.ON or not is_trained(trace, call):
                continue
            seen.add(call.cut_samples.site)
            finding = self.finding(
                call,
                "the number of the rank chooses a part of each sample, but each rank has other samples: their other parts "
                "reach no rank",
                help="Give the ranks the same samples, or the whole ones to the model.",
                site=call.cut_samples.site,
            )
            finding.related = (
                *finding.related,
                (call.cut_samples.given, "each rank gets its samples here"),
            )
            yield finding

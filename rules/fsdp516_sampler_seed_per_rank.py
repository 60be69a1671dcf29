"""FSDP516: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import PickedByRank, SamplerBuilt, SplitPerRank, Trace


class SamplerSeedPerRank(Rule):
    """The ranks take their parts of a dataset in different orders.

    ## What it does
    Finds `DistributedSampler(..., seed=seed)` if the seed depends on the rank or on the clock of each rank,
    and the sampler shuffles.

    A check without a run also finds the rank's part of an order that each rank draws with a seed of its own:
    `torch.randperm(n, generator=generator)[rank::world_size]`, `order[rank * size : (rank + 1) * size]`, or
    `order[position + rank]`. This may be in a sampler of the program. It also finds `random_split` of a dataset that all ranks have, with a seed of
    each rank: the ranks then train on samples that others hold out for validation. And it finds a `DistributedSampler`
    over a list, or over a dataset that holds one, that each rank has shuffled (`random.shuffle(files)`) with such a seed.

    ## Why is this bad?
    Each rank shuffles the whole dataset with the seed and takes every Nth sample. With one seed the parts
    of the ranks are disjoint. With a seed for each rank they overlap: in an epoch of 8 samples on two ranks,
    some came twice and others not at all. There is no error.

    Pass the same seed on all ranks. The rank itself already selects the part.

    ## Since
    torch 1.6, the first with this argument.

    ## References
    - https://docs.pytorch.org/docs/stable/data.html (`DistributedSampler`: the seed "should be identical
      across all processes")
    - NVlabs/LongLive#71
    """

    code = "FSDP516"
    name = "sampler-seed-per-rank"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(SamplerBuilt):
            if not event.seed_per_rank or event.shuffle is not True or event.site in seen:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                "the seed of this sampler differs between ranks, so that their parts of the dataset "
                "overlap",
                help="Pass the same seed on all ranks.",
            )
        for event in trace.of(SamplerBuilt):
            if event.shuffled_at is None or event.shuffled_at in seen:
                continue
            seen.add(event.shuffled_at)
            yield self.finding(
                event,
                "each rank shuffles this with a seed of its own, so that the parts that a sampler gives the ranks "
                "overlap",
                help="Shuffle with the same seed on all ranks, and seed by the rank afterwards.",
                because=[(event, "gives each rank its part")],
                site=event.shuffled_at,
            )
        for picked in trace.of(PickedByRank):
            if not picked.own_order or picked.site in seen:
                continue
            seen.add(picked.site)
            yield self.finding(
                picked,
                "each rank takes its part of an order that it draws with a seed of its own, so that the parts "
                "overlap",
                help="Draw the order with the same seed on all ranks.",
            )
        for split in trace.of(SplitPerRank):
            if split.site not in seen:
                seen.add(split.site)
                yield self.finding(
                    split,
                    "each rank splits the dataset with a seed of its own, so that ranks train on samples that "
                    "others hold out",
                    help="Give `random_split` a generator with the same seed on all ranks.",
                )

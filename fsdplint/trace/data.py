"""Events of the data: samplers, loaders, epochs."""

from __future__ import annotations

from typing import ClassVar

from fsdplint.trace.base import Event, Site, event
from fsdplint.trace.fields import combined, differs, disjoint, numbered, same_sequence, unrecorded


@event
class SamplerBuilt(Event):
    """A `DistributedSampler`, which gives each rank its part of a dataset.

    shuffle: whether it shuffles; None if unknown.
    seed_per_rank: whether its seed certainly differs between ranks.
    of_part: whether its dataset is certainly the rank's part of the data already; the recorder
        writes the samples of a `Subset`.
    over_all: whether it certainly splits over all ranks.
    mesh, dimension: the mesh and its dimension whose position the sampler gets as the rank.
    shuffled_at: where each rank brought its dataset into an order of its own; None if nowhere.
    """

    kind: ClassVar[str] = "sampler-built"
    sampler: str
    shuffle: bool | None = None
    seed_per_rank: bool = combined(differs, default=False)
    of_part: bool = combined(disjoint, default=False)
    over_all: bool = False
    mesh: str = unrecorded("the passes say what each rank gets", default="")
    dimension: str = unrecorded("the passes say what each rank gets", default="")
    shuffled_at: Site | None = unrecorded("a recorder does not see lists", default=None)


@event
class EpochSet(Event):
    """`sampler.set_epoch(epoch)`; `sampler` is None if unknown.

    epoch: the number, if it is known.
    """

    kind: ClassVar[str] = "sampler-epoch-set"
    sampler: str | None = None
    epoch: int | None = None


@event
class LoaderBuilt(Event):
    """A torch DataLoader; `sampler` is its DistributedSampler.

    passed_over: a DistributedSampler over the same dataset, if the loader gets no sampler at all.
    picked: the index of the event by which each rank gets a part of its dataset, or of what the
        dataset holds.
    repeated_by_workers: whether each of its workers certainly reads all samples of a stream, so
        that each sample comes several times (static traces only).
    """

    kind: ClassVar[str] = "loader-built"
    loader: str
    sampler: str | None = None
    passed_over: str | None = None
    picked: int | None = unrecorded("a recorder does not follow data", default=None)
    repeated_by_workers: bool = unrecorded("a recorder does not see the workers", default=False)


@event
class LoaderIterated(Event):
    """A pass over a DataLoader begins.

    same_batches: whether every rank gets the same batches; None if unknown.
    epoch: the attribute, with its number, that alone makes the order of a sampler of the program
        another one in other passes; "" if there is none or it is not known (static traces only).
    epoch_setter: the method of the sampler that sets it; "" if code that was not executed yet may
        call it.
    kept: whether `itertools.cycle` keeps its batches, and repeats them after the pass.
    """

    kind: ClassVar[str] = "loader-iterated"
    loader: str
    sampler: str | None = None
    same_batches: bool | None = combined(same_sequence, default=None)
    epoch: str = unrecorded("a recorder does not read the code of a sampler", default="")
    epoch_setter: str = unrecorded("a recorder does not read the code of a sampler", default="")
    kept: bool = unrecorded("a recorder does not see who keeps batches", default=False)


@event
class UnequalTurns(Event):
    """A loop that visits every nth element of a known number has ended.

    The event is at the place where the elements are chosen.

    begin: the index of the first event in the loop. most, fewest: the turns on each of two ranks.
    """

    kind: ClassVar[str] = "unequal-turns"
    static_only: ClassVar[str] = "a record has the turns themselves"
    begin: int | None = numbered(default=None)
    most: int = 0
    fewest: int = 0


@event
class LoaderLeft(Event):
    """A pass over a DataLoader ends, at the last batch or before."""

    kind: ClassVar[str] = "loader-left"
    loader: str


@event
class DataEscaped(Event):
    """A sampler or loader was passed to code that could not be followed (static traces only)."""

    kind: ClassVar[str] = "data-escaped"
    static_only: ClassVar[str] = "a recorder sees what becomes of the data"
    data: str


@event
class SharedNumbersDrawn(Event):
    """A generator that has the same seed on all ranks draws random numbers outside of a model.

    shifted: whether the seed is the sum of the rank and of the number of a turn, so that other
        ranks have it in other turns.
    """

    kind: ClassVar[str] = "shared-numbers-drawn"
    static_only: ClassVar[str] = "a recorder does not see which numbers make a batch"
    shifted: bool = False


@event
class OwnNumberDivided(Event):
    """A number of this rank alone was divided by the number of ranks.

    shown: whether it became a part of a text, or a function got it that may show it.
    corrected: whether a collective, or a backward pass, adds the quotients of the ranks.
    """

    kind: ClassVar[str] = "own-number-divided"
    static_only: ClassVar[str] = "uses of a number are not recorded"
    shown: bool = False
    corrected: bool = False


@event
class SplitPerRank(Event):
    """`random_split` of a dataset that all ranks have, with a seed that differs between ranks."""

    kind: ClassVar[str] = "split-per-rank"
    static_only: ClassVar[str] = "a recorder does not see the samples of a split"


@event
class SetOrderUsed(Event):
    """A program relies on the order of a set of texts, which is another one in each process.

    runs_collectives: whether it runs a collective for each element, in this order; else each rank
        takes its part of a list in this order.
    """

    kind: ClassVar[str] = "set-order-used"
    static_only: ClassVar[str] = "a recorder does not see what a loop visits"
    runs_collectives: bool = False


@event
class SameNoise(Event):
    """Random numbers that all ranks have drawn are mixed with data of the rank, under autograd.

    drawn: where they were drawn.
    """

    kind: ClassVar[str] = "same-noise"
    static_only: ClassVar[str] = "a recorder does not see which numbers make a batch"
    drawn: Site


@event
class RankData(Event):
    """The first place where ranks may get data of their own.

    The program computes with the number of the rank, draws numbers of which it is not known that
    all ranks draw the same, or calls code that is out of sight.
    """

    kind: ClassVar[str] = "rank-data"
    static_only: ClassVar[str] = "recorded passes over data say what each rank got"

"""Samplers, loaders and random generators."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsdplint.interpreter.torch_values.ranks import MeshPosition, RankSide
from fsdplint.interpreter.values import (
    Value,
)


@dataclass(eq=False, repr=False)
class SamplerValue(Value):
    """A torch DistributedSampler.

    splits: whether it certainly gives each rank other samples.
    same_part: whether the program writes a constant for the rank, so that all ranks get one part.
    over_all: whether it certainly splits over all ranks.
    """

    id: str
    splits: bool = False
    same_part: bool = False
    over_all: bool = False


@dataclass(eq=False, repr=False)
class GeneratorValue(Value):
    """A `torch.Generator`; `seed` is the seed that `manual_seed` gave it.

    per_rank: whether this seed is certainly another one on each rank.
    loop_depth: the number of loops around the call of `manual_seed`.
    """

    seed: Value | None = None
    per_rank: bool = False
    loop_depth: int = 0


@dataclass(eq=False, repr=False)
class LoaderValue(Value):
    """A torch DataLoader.

    sampler: its DistributedSampler; None if it has none or it is unknown.
    shuffle: whether it shuffles; None if its order is unknown.
    own_parts: whether an object of the program gives each rank other data.
    over_all: whether it certainly gives no two of all ranks the same.
    position: the position in a mesh by which it does, if ranks at one position get the same.
    only_on: the ranks that have it, if the others have None or an empty list instead.
    collate: what makes a batch of samples, if it is given.
    generator: the generator that it shuffles with; None for that of the process.
    order: a sampler of the program, which gives the indices of each pass.
    padded: the padded elements of a batch, with the dimension of their length.
    optional: whether the samples choose between a batch and None.
    same_part: whether its DistributedSampler gives all ranks the part of one.
    """

    id: str
    sampler: SamplerValue | None = None
    dataset: Value | None = None
    shuffle: bool | None = None
    collate: Value | None = None
    generator: GeneratorValue | None = None
    own_parts: bool = False
    over_all: bool = False
    position: MeshPosition | None = None
    only_on: RankSide | None = None
    order: Value | None = None
    padded: dict[str, int] = field(default_factory=dict)
    optional: bool = False
    same_part: bool = False


@dataclass(eq=False, repr=False)
class Batches(Value):
    """The iterable of a loop over a DataLoader: `enumerate(loader)` and similar calls.

    begun: whether a pass over the loader began with it (`iter(loader)`). element: what one turn of
    the loop gets; None if unknown.
    """

    loader: LoaderValue
    begun: bool = False
    element: Value | None = None

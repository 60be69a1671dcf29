"""What a number is of the data."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.trace import Collective, MeansSummed, OwnNumberDivided, Split


@dataclass(frozen=True)
class Amount:
    """What is certain of a number, or of a tensor, that a program computes of its data.

    Attributes:
        of_batch: whether it is the mean over one micro-batch, which nothing has scaled.
        of_share: whether it is a mean over the share of the data that this rank has.
        counts_share: whether it is the number of batches, samples or tokens of that share.
        counts_shares: whether it is that number for all ranks: a sum over them, or a product with
            their number.
        marks_share: whether it marks elements of that share: `labels != -100`.
        counts_all: whether it counts elements of all ranks, as `p.numel()` of a DTensor does.
        sum_of_counts: the reduction that added such counts of the ranks.
        sum_of_means: the reduction that added the means of the ranks, if nothing has divided it.
        repeated: what chose the data of several ranks alike, if it is a sum over all ranks.
        size_of: the mesh and the dimension of which it is the size.
        divided_by: what chose the data in the sum over all ranks that has divided it.
        times_size_of: the mesh and the dimension by whose size it was multiplied.
        times_ranks: whether it was multiplied by the number of ranks, and nothing may have undone
            that.
        by_own_number: whether it was divided by a number that differs between ranks.
        own: whether it was computed of data of this rank alone, and of constants.
        over_ranks: the division of such a number by the number of ranks that gave it.
    """

    of_batch: bool = False
    of_share: bool = False
    counts_share: bool = False
    counts_shares: bool = False
    marks_share: bool = False
    counts_all: bool = False
    sum_of_counts: Collective | None = None
    sum_of_means: MeansSummed | None = None
    repeated: Split | None = None
    size_of: tuple[str, str] | None = None
    divided_by: Split | None = None
    times_size_of: tuple[str, str] | None = None
    times_ranks: bool = False
    by_own_number: bool = False
    own: bool = False
    over_ranks: OwnNumberDivided | None = None

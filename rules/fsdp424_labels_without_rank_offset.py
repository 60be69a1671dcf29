"""FSDP424: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Collective, Trace


class LabelsWithoutRankOffset(Rule):
    """A contrastive loss compares with the rows of all ranks, and all ranks label theirs from zero.

    ## What it does
    Finds a cross entropy of products of the rank's own outputs with the rows that it gathered from all ranks
    (`features @ everyone.t()`), whose labels are `torch.arange(n)` on each rank.

    ## Why is this bad?
    There is no error. The gathered rows are in the order of the ranks: those of rank 1 start at `n`. On each rank
    but the first, the labels name the rows of rank 0 as the partners of the rank's own. Two ranks print how often
    the label is the partner of its row:

        rank 0: 4 of 4 labels are right
        rank 1: 0 of 4 labels are right

    Add the place of the rank's first row:

        labels = torch.arange(n, device=device) + dist.get_rank() * n

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html (`all_gather`: the tensors are in the order of the ranks)
    """

    code = "FSDP424"
    name = "labels-without-rank-offset"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Collective):
            if event.labels_from_zero is None or event.labels_from_zero in seen:
                continue
            seen.add(event.labels_from_zero)
            yield self.finding(
                event,
                "the labels of all ranks start at zero, but the gathered rows of rank r start at r times their number",
                help="Add `dist.get_rank()` times the number of rows of a rank to the labels.",
                site=event.labels_from_zero,
                because=[
                    (event, "the rows of all ranks are gathered here, in the order of the ranks")
                ],
            )

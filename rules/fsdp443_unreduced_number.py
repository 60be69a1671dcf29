"""FSDP443: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import OwnNumberDivided, Trace


class UnreducedNumber(Rule):
    """A number of one rank is divided by the number of ranks, and nothing adds those of the others.

    ## What it does
    Finds a number that a rank computes of its own batches and of the outputs of a model for them, such as the sum of its
    losses, that the program divides by the number of ranks and shows: it becomes a part of a text, or an argument of a
    function that logs it.

    It is silent if a collective gets the number before or after the division, if a backward pass begins at the quotient,
    and where the ranks may have the same data.

    ## Why is this bad?
    The division makes a mean of the sum over all ranks. Without the sum, the number is too small by the number of ranks,
    and has nothing of the data of the other ranks. There is no error: the loss looks good, and becomes better with
    each further GPU. On two ranks, the program prints:

        loss 0.70 instead of 1.41

    Add the numbers of the ranks first: `dist.all_reduce(total)`.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce
    - https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler (the part of each rank)
    """

    code = "FSDP443"
    name = "unreduced-number"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(OwnNumberDivided):
            if event.corrected or not event.shown or event.site in seen:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                "a number of this rank alone is divided by the number of ranks: the result is too small by "
                "this number",
                help="Add the numbers of the ranks with `dist.all_reduce` before the division.",
            )

"""FSDP429: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import MeansSummed, Trace


class MeansSummedOverRanks(Rule):
    """The sum over the ranks of a mean is shown as if it was the mean.

    ## What it does
    Finds a mean over the data of each rank that `all_reduce` adds over the ranks, and a total of all ranks that the
    program divides by the number of batches, samples or tokens of one rank (`total / len(loader)`), where the result becomes
    a part of a text, or an argument of a function that logs it.

    It is silent if any operation changes the result, such as a division by the number of ranks, if the
    reduction is no sum (`ReduceOp.AVG`), and where the ranks may have the same data.

    ## Why is this bad?
    The number is too large by the number of ranks: it changes when the job gets another number of GPUs, and a threshold or
    an early stop that depends on it is wrong. There is no error. On two ranks, the program prints:

        validation loss 2.81 instead of 1.41

    Divide by the number of ranks, or sum the divisor over the ranks, too.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce (the default is a sum)
    - https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler (the part of each rank)
    """

    code = "FSDP429"
    name = "means-summed-over-ranks"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(MeansSummed):
            if event.corrected or not event.shown or event.site in seen:
                continue
            seen.add(event.site)
            if event.total:
                what = "a total of all ranks is divided by the size of the part of one rank"
                help = "Sum the divisor over the ranks too, or divide by the number of ranks."
            else:
                what = "`all_reduce` adds the means of the ranks, and nothing divides the sum"
                help = "Divide by the number of ranks, or reduce with `op=dist.ReduceOp.AVG`."
            yield self.finding(
                event, f"{what}: the result is too large by the number of ranks", help=help
            )

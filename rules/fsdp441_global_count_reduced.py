"""FSDP441: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Collective, Trace


class GlobalCountReduced(Rule):
    """The number of elements of sharded parameters is added up over the ranks, which counts them again.

    ## What it does
    Finds `dist.all_reduce` of a sum of `p.numel()` of parameters that `fully_shard` has sharded.

    The numbers of elements of the rank's own parts (`p.to_local().numel()`), those of FSDP1, and sums that the program
    divides by the number of ranks are not reported.

    ## Why is this bad?
    A parameter of FSDP1 is the part of the rank, and `numel()` counts this part. With FSDP2, it is a DTensor, and
    `numel()` counts the elements of all ranks. There is no error, but reports of the size, of the floating-point
    operations or of the utilization are too large. Two ranks print, for a layer with 72 elements:

        parameters: 144

    Do without the collective.

    ## Since
    torch 2.4.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.tensor.html (`DTensor`, `to_local`)
    """

    code = "FSDP441"
    name = "global-count-reduced"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterable[Finding]:
        seen = set()
        for event in trace.of(Collective):
            if event.of_global_count and event.site not in seen and not event.ranks.partial:
                seen.add(event.site)
                yield self.finding(
                    event,
                    "`numel()` of sharded parameters counts the elements of all ranks already, and this counts "
                    "them again on each rank",
                    help="Do without `all_reduce`, or count `p.to_local().numel()`.",
                )

"""FSDP428: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Escaped,
    Fsdp1Used,
    Fsdp2Used,
    GradientScaled,
    ShardReduced,
    SyncSwitched,
    Trace,
)
from fsdplint.trace.queries.data_parallelism import other_parallelism


class RanksTimesOwnMean(Rule):
    """The loss is multiplied by the number of ranks, but divided by a count of this rank alone.

    ## What it does
    Finds the backward pass of a loss that the program multiplies by the number of ranks and divides by a number that
    each rank computes of its own batch, such as the number of its tokens (`loss * world_size / tokens`).

    A number that `all_reduce` or another collective makes the same on all ranks is fine, and so is one that the program
    multiplies by the number of ranks, too. Programs that scale or read the gradients themselves, or call
    `set_gradient_divide_factor`, are not reported.

    ## Why is this bad?
    The factor undoes the average that FSDP takes of the gradients: it belongs to a loss that is divided by the count of all
    ranks. With the count of one rank, the gradients are the sum of the means of the ranks, too large by the number of
    ranks, and a rank with few tokens counts as much as one with many. There is no error. On two ranks, the
    program prints:

        gradient norm 0.82 instead of 0.41

    Sum the count over the ranks first: `dist.all_reduce(tokens)`.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (gradients are averaged)
    - https://huggingface.co/blog/gradient_accumulation (a loss of all tokens)
    """

    code = "FSDP428"
    name = "ranks-times-own-mean"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        if other_parallelism(trace) or _scales_gradients(trace):
            return
        seen = set()
        for event in trace.of(BackwardRun):
            if not event.sums_means or not event.collective or event.site in seen:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                "the loss is multiplied by the number of ranks, but divided by a number of this rank alone: the gradients "
                "are too large by the number of ranks",
                help="Sum the divisor over the ranks with `all_reduce`, or remove the factor.",
            )


def _scales_gradients(trace: Trace) -> bool:
    """Whether the program may scale or reduce the gradients itself."""
    if any(True for _ in trace.of(GradientScaled, ShardReduced, Escaped)):
        return True
    used: list[SyncSwitched | Fsdp2Used | Fsdp1Used] = [
        *trace.of(SyncSwitched),
        *trace.of(Fsdp2Used),
        *trace.of(Fsdp1Used),
    ]
    return any(event.api.endswith(("divide_factor", "comm_hook")) for event in used)

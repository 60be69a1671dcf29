"""FSDP415: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import ShardReduced, Trace


class GradientsReducedByHand(Rule):
    """The gradients of a sharded model are added up over the ranks with `dist.all_reduce`.

    ## What it does
    Finds `dist.all_reduce` of all ranks on the gradients of parameters that FSDP1 or `fully_shard` shards:
    `p.grad`, `p.grad.data` and `p.grad.to_local()`, as programs without DDP or FSDP average their gradients.

    A reduction over another group is not reported: replicas may be averaged by hand. Gradients of ignored
    parameters are not sharded, and the program has to reduce them.

    ## Why is this bad?
    FSDP has averaged the gradients in the backward pass, and each rank holds a part of them. The parts of
    the ranks belong to other rows, and their sum is no gradient: a model of two ranks had the gradient norm
    0.26 before and 0.13 after such an average, without an error. With `p.grad` under FSDP2, the call fails:

        NotImplementedError: Operator c10d.allreduce_.default does not have a sharding strategy registered.

    Remove the loop over the gradients.

    ## Since
    torch 2.0.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    - https://docs.pytorch.org/tutorials/intermediate/dist_tuto.html (`average_gradients`)
    """

    code = "FSDP415"
    name = "gradients-reduced-by-hand"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(ShardReduced):
            if event.site in seen:
                continue
            seen.add(event.site)
            effect = (
                "it adds parts that do not belong together"
                if event.local
                else "the call fails, because it does not know DTensors"
            )
            yield self.finding(
                event,
                f"`all_reduce` of a gradient of which each rank holds another part: {effect}",
                help="Remove it: FSDP averages the gradients in the backward pass.",
            )

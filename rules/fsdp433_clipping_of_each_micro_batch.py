"""FSDP433: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.early_clipping import clipped_in_each_turn


class ClippingOfEachMicroBatch(Rule):
    """The gradients of a sharded model are clipped after each micro-batch, and not once for a step.

    ## What it does
    Finds gradient clipping after each of several backward passes that add up the gradients for one optimizer
    step. The step comes after the loop, or in every Nth turn of it.

    A clipping that only measures the norm (`max_norm=float("inf")` or `1e9`) is not reported.

    ## Why is this bad?
    There is no error. The clipping scales what the earlier micro-batches have added, again and again, and the
    last micro-batch counts the most. The norm of a part of the gradients decides, and not that of the step. Two
    ranks print how much the first of four micro-batches counts in the step:

        weight of the first micro-batch: 0.11, of the last: 0.47

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/notes/amp_examples.html (gradient accumulation: clip before the step)
    """

    code = "FSDP433"
    name = "clipping-of-each-micro-batch"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for clipped, backward in clipped_in_each_turn(trace):
            if clipped.site in seen:
                continue
            seen.add(clipped.site)
            yield self.finding(
                clipped,
                f"the gradients of `{class_name(trace, clipped.modules[0])}` are clipped after each micro-batch, "
                f"which scales those of the earlier ones again",
                help="Clip once, between the last backward pass and the optimizer step.",
                because=[(backward, "adds to the gradients")],
            )

"""FSDP432: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.early_clipping import clipped_before_backward


class ClippingBeforeBackward(Rule):
    """The gradients of a sharded model are clipped before the backward pass that computes them.

    ## What it does
    Finds gradient clipping after `optimizer.zero_grad()` and before the backward pass of the next step, if
    nothing clips between that backward pass and the step.

    A clipping that only measures the norm (`max_norm=float("inf")` or `1e9`) is not reported.

    ## Why is this bad?
    There is no error. There are no gradients to clip, and the step uses those of the backward pass as they are.
    With a bound of 0.001 and a learning rate of 1, two ranks print:

        largest change of a weight: 1.5

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
    """

    code = "FSDP432"
    name = "clipping-before-backward"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for clipped, backward in clipped_before_backward(trace):
            if clipped.site in seen:
                continue
            seen.add(clipped.site)
            yield self.finding(
                clipped,
                f"the gradients of `{class_name(trace, clipped.modules[0])}` are clipped before the backward pass "
                f"computes them, so the clipping has no effect",
                help="Clip between the backward pass and the optimizer step.",
                because=[(backward, "computed here")],
            )

"""FSDP416: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Clipped,
    GradientsZeroed,
    OptimizerStepped,
    Trace,
)
from fsdplint.trace.queries.clipping import optimizers_of, turns_of
from fsdplint.trace.queries.common import class_name


class ClippingAfterStep(Rule):
    """The gradients of a sharded model are clipped after the optimizer step that uses them.

    ## What it does
    Finds gradient clipping directly after `optimizer.step()`, without a backward pass in between, if
    `optimizer.zero_grad()` follows before the optimizer steps again. A step in some turns of a loop counts
    if the clipping is in the same turns.

    A clipping that only measures the norm (`max_norm=float("inf")`) is not reported.

    ## Why is this bad?
    The step uses the gradients as they are, and the clipped gradients are thrown away, without an error:
    with a bound of 0.001 and a learning rate of 1, one step changed a weight by 4.2.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
    """

    code = "FSDP416"
    name = "clipping-after-step"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Clipped):
            if event.site in seen or event.max_norm == float("inf"):
                continue
            step = _step_before(trace, event)
            if step is None or not _zeroed_next(trace, event):
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"the gradients of `{class_name(trace, event.modules[0])}` are clipped after the optimizer "
                f"step and then set to zero, so the clipping has no effect",
                help="Clip between the backward pass and the optimizer step.",
                because=[(step, "stepped here")],
            )


def _step_before(trace: Trace, event: Clipped) -> OptimizerStepped | None:
    """The step directly before a clipping, with nothing between that could make new gradients."""
    optimizers = optimizers_of(trace, event)
    last = None
    for other in trace.before(event, BackwardRun, OptimizerStepped, GradientsZeroed):
        last = other
    if not isinstance(last, OptimizerStepped) or last.optimizer not in optimizers:
        return None
    return last if len(optimizers) == 1 and turns_of(last) == turns_of(event) else None


def _zeroed_next(trace: Trace, event: Clipped) -> bool:
    """Whether the optimizer's gradients become zero before its next step uses them.

    A backward pass in between adds to them, and other optimizers have other gradients.
    """
    optimizers = optimizers_of(trace, event)
    for other in trace.after(event, OptimizerStepped, GradientsZeroed):
        if isinstance(other, OptimizerStepped | GradientsZeroed) and other.optimizer in optimizers:
            return isinstance(other, GradientsZeroed) and turns_of(other) <= turns_of(event)
    return False

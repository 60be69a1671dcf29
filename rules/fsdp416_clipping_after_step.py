"""FSDP416: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Clipped,
    Collective,
    GradientScaled,
    GradientsZeroed,
    OptimizerStepped,
    PartialRead,
    Trace,
)
from fsdplint.trace.queries.clipping import may_only_measure, optimizers_of, turns_of
from fsdplint.trace.queries.common import class_name


class ClippingAfterStep(Rule):
    """The gradients of a sharded model are clipped after the optimizer step that uses them.

    ## What it does
    Finds gradient clipping directly after `optimizer.step()`, without a backward pass in between, if
    `optimizer.zero_grad()` follows before the optimizer steps again. A step in some turns of a loop counts
    if the clipping is in the same turns.

    The program may clip itself: it multiplies or divides the gradients in place, and does not read them
    afterwards.

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
        yield from self._by_hand(trace)
        seen = set()
        for event in trace.of(Clipped):
            if event.site in seen or may_only_measure(event):
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

    def _by_hand(self, trace: Trace) -> Iterator[Finding]:
        """Gradients that the program scales itself."""
        seen = set()
        for event in trace.of(GradientScaled):
            if event.site in seen or not event.modules:
                continue
            step = _step_before(trace, event)
            seen.add(event.site)
            here = [one for one in trace.of(GradientScaled) if one.site == event.site]
            lost = all(_is_lost(trace, one) for one in here)
            if step is None or not lost or not any(_zeroed_next(trace, one) for one in here):
                continue
            yield self.finding(
                event,
                f"the gradients of `{class_name(trace, event.modules[0])}` are scaled after the optimizer step "
                f"and then set to zero, so the scaling has no effect",
                help="Scale or clip them between the backward pass and the optimizer step.",
                because=[(step, "stepped here")],
            )


def _step_before(trace: Trace, event: Clipped | GradientScaled) -> OptimizerStepped | None:
    """The step directly before a clipping, with nothing between that could make new gradients."""
    optimizers = optimizers_of(trace, event)
    last = None
    for other in trace.before(event, BackwardRun, OptimizerStepped, GradientsZeroed):
        last = other
    if not isinstance(last, OptimizerStepped) or last.optimizer not in optimizers:
        return None
    together = turns_of(last) == turns_of(event)
    if isinstance(event, GradientScaled):  # perhaps under a test of the norm
        together = turns_of(last) <= turns_of(event)
    return last if len(optimizers) == 1 and together else None


def _zeroed_next(trace: Trace, event: Clipped | GradientScaled) -> bool:
    """Whether the optimizer's gradients become zero before its next step uses them.

    A backward pass in between adds to them, and other optimizers have other gradients.
    """
    optimizers = optimizers_of(trace, event)
    for other in trace.after(event, OptimizerStepped, GradientsZeroed):
        if isinstance(other, OptimizerStepped | GradientsZeroed) and other.optimizer in optimizers:
            return isinstance(other, GradientsZeroed) and turns_of(other) <= turns_of(event)
    return False


def _is_lost(trace: Trace, event: GradientScaled) -> bool:
    """Whether nothing uses scaled gradients; the last turn of a loop may end before they are zeroed."""
    last = not any(True for _ in trace.after(event, OptimizerStepped))
    if event.read_later or _read_next(trace, event):
        return False
    return last or _zeroed_next(trace, event)


def _read_next(trace: Trace, event: GradientScaled) -> bool:
    """Whether gradients may be read, such as by `full_tensor()`, before they are set to zero."""
    for other in trace.after(event, BackwardRun, Collective, GradientsZeroed, PartialRead):
        if not (isinstance(other, Collective) and other.api == "barrier"):
            return isinstance(other, Collective | PartialRead)
    return False

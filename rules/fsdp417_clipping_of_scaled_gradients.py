"""FSDP417: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Clipped,
    OptimizerStepped,
    ScalerBuilt,
    ScalerStepped,
    ScalerUnscaled,
    Trace,
)
from fsdplint.trace.queries.clipping import optimizers_of, turns_of
from fsdplint.trace.queries.common import class_name

_PERHAPS_SCALED = 1000.0  # a bound that the program may have multiplied by the scale, or infinity


class ClippingOfScaledGradients(Rule):
    """The gradients of a sharded model are clipped while a gradient scaler has multiplied them.

    ## What it does
    Finds gradient clipping with a number as bound, between a backward pass and `scaler.step(optimizer)`,
    with no `scaler.unscale_(optimizer)` between the backward pass and the clipping.

    A bound that is no number, or a large one, is not reported: the program may multiply it by the scale.

    ## Why is this bad?
    The norm of the gradients is that of the scaled loss, so that they are clipped in each step, and the
    scaler divides them by the scale afterwards. There is no error: with a bound of 1 and a scale of 65536,
    one step of SGD with a learning rate of 1 changed the weights by 0.00002.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping
    """

    code = "FSDP417"
    name = "clipping-of-scaled-gradients"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        enabled = {event.scaler: event.enabled is True for event in trace.of(ScalerBuilt)}
        seen = set()
        for event in trace.of(Clipped):
            step = _scaled_step(trace, event)
            if step is None or event.site in seen or not enabled.get(step.scaler):
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"the gradients of `{class_name(trace, event.modules[0])}` are clipped while they are "
                f"multiplied by the scale",
                help="Call `scaler.unscale_(optimizer)` before the clipping.",
                because=[(step, "stepped here")],
            )


def _scaled_step(trace: Trace, event: Clipped) -> ScalerStepped | None:
    """The step of a scaler that divides the clipped gradients by the scale; None if none does."""
    if _may_be_scaled(event.max_norm):
        return None
    optimizers = optimizers_of(trace, event)
    last = None
    for before in trace.before(event, BackwardRun, ScalerUnscaled, OptimizerStepped):
        last = before
    step = next(iter(trace.after(event, BackwardRun, ScalerStepped, OptimizerStepped)), None)
    if not isinstance(last, BackwardRun) or not isinstance(step, ScalerStepped):
        return None
    same = turns_of(step) == turns_of(event) and step.callbacks == event.callbacks
    return step if same and step.optimizer in optimizers and len(optimizers) == 1 else None


def _may_be_scaled(bound: object) -> bool:
    """Whether the program may have multiplied a bound by the scale, or only measures the norm."""
    if isinstance(bound, str):
        return bound == "?" or bound.endswith("inf")
    return not isinstance(bound, int | float) or bound >= _PERHAPS_SCALED

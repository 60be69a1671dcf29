"""FSDP421: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    HelperStateLoaded,
    ScalerBuilt,
    ScalerStepped,
    ScalerUnscaled,
    ScalerUpdated,
    Trace,
)

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class ScalerNeverUpdated(Rule):
    """A gradient scaler makes the second step of an optimizer, and nothing calls its `update()`.

    ## What it does
    Finds `scaler.step(optimizer)` that is called again for the same optimizer, if the program never calls
    `scaler.update()`. A scaler that is not enabled, or that code out of sight gets, is not reported.

    ## Why is this bad?
    `update()` ends the step: it adapts the scale, and lets the optimizer step again. Without it the second step
    raises an error. Two ranks print:

        RuntimeError: step() has already been called since the last update().

    With `scaler.unscale_(optimizer)` in front of the step, the error is `unscale_() is being called after step().`

    ## Fix safety
    Safe: the fix calls `scaler.update()` after the step. It is offered if the scaler steps at one place only.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/amp.html (`GradScaler.update`)
    """

    code = "FSDP421"
    name = "scaler-never-updated"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete or not trace.shardings():
            return
        enabled = {built.scaler: built for built in trace.of(ScalerBuilt) if built.enabled}
        updated = {event.scaler for event in trace.of(ScalerUpdated)}
        unseen = {event.into for event in trace.of(HelperStateLoaded) if event.state is None}
        seen = set()
        for event in trace.of(ScalerStepped):
            if event.scaler not in enabled or event.site in seen:
                continue
            if event.scaler in updated | unseen:
                continue
            again = _again(trace, event)
            if again is None or event.callbacks:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                "this scaler steps the optimizer again, and nothing calls its `update()`",
                help="Call `scaler.update()` after the step.",
                because=[
                    (enabled[event.scaler], "made here"),
                    *(
                        [(again, "raises an error the second time")]
                        if again.site != event.site
                        else []
                    ),
                ],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at, receiver

        steps = [event for trace in program.traces for event in trace.of(ScalerStepped)]
        found = call_at(finding.site)
        if found is None or len({(one.site, one.optimizer) for one in steps}) > 1:
            return None
        source, call = found
        scaler = receiver(source, call)
        if scaler is None or not isinstance(source.parent(call), cst.Expr):
            return None
        rewrite = Rewrite()
        rewrite.insert_after(source, source.statement(call), [f"{scaler}.update()"])
        return rewrite.fix("Update the scaler after its step", Safety.SAFE)


def _again(trace: Trace, step: ScalerStepped) -> ScalerStepped | ScalerUnscaled | None:
    """The next use of the scaler for the same optimizer after a step."""
    for event in trace.after(step, ScalerStepped, ScalerUnscaled):
        if isinstance(event, ScalerStepped | ScalerUnscaled):
            if (event.scaler, event.optimizer) == (step.scaler, step.optimizer):
                return event
    return None

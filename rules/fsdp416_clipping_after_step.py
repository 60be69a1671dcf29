"""FSDP416: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Clipped,
    Event,
    GradientsZeroed,
    GuardKind,
    OptimizerBuilt,
    OptimizerStepped,
    Trace,
)
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.wrappers import prepared_by_framework


class ClippingAfterStep(Rule):
    """The gradients of a sharded model are clipped after the optimizer step that uses them.

    ## What it does
    Finds gradient clipping between `optimizer.step()` and `optimizer.zero_grad()`, with no backward pass
    and no other step in between. A step in some turns of a loop counts if the clipping is in the same turns.

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


def _optimizers(trace: Trace, event: Clipped) -> set[str]:
    """The optimizers over the clipped parameters; empty if a module is not sharded."""
    if not event.modules or not all(_is_sharded(trace, m, event) for m in event.modules):
        return set()
    return {
        built.optimizer
        for built in trace.before(event, OptimizerBuilt)
        if any(trace.related(held, module) for held in built.modules for module in event.modules)
    }


def _is_sharded(trace: Trace, module: str, event: Clipped) -> bool:
    by_framework = prepared_by_framework(trace, module, event)
    return trace.sharded_within(module, event) is not None or by_framework is not None


def _step_before(trace: Trace, event: Clipped) -> OptimizerStepped | None:
    """The step directly before a clipping, with nothing between that could make new gradients."""
    optimizers = _optimizers(trace, event)
    last = None
    for other in trace.before(event, BackwardRun, OptimizerStepped, GradientsZeroed):
        last = other
    if not isinstance(last, OptimizerStepped) or last.optimizer not in optimizers:
        return None
    return last if len(optimizers) == 1 and _turns(last) == _turns(event) else None


def _zeroed_next(trace: Trace, event: Clipped) -> bool:
    """Whether the optimizer's gradients become zero before anything uses them."""
    optimizers = _optimizers(trace, event)
    for other in trace.after(event, BackwardRun, OptimizerStepped, GradientsZeroed):
        return (
            isinstance(other, GradientsZeroed)
            and other.optimizer in optimizers
            and _turns(other) <= _turns(event)
        )
    return False


def _turns(event: Event) -> set[tuple[object, bool]]:
    """The tests that decide in which turns of a loop an event happens, with their outcomes."""
    tests = (guard for guard in event.guards if guard.kind is GuardKind.VARYING)
    return {(guard.site or guard.text, guard.holds) for guard in tests}

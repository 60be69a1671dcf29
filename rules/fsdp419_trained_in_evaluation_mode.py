"""FSDP419: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, Called, GradMode, OptimizerStepped, Trace
from fsdplint.trace.queries.common import class_name, optimizers_over


class TrainedInEvaluationMode(Rule):
    """A sharded model stays in evaluation mode after an evaluation, and trains on.

    ## What it does
    Finds training steps of a sharded model in evaluation mode that follow an evaluation, if the model
    trained in training mode before: the evaluation calls `model.eval()`, and nothing calls `model.train()`
    before the next step. The model has a dropout or batch norm of `torch.nn`, for which the mode matters, or
    code of its own that acts in training mode alone: `F.dropout(x, 0.1, self.training)`, or `if self.training:`
    around code that draws random numbers or changes a buffer.

    A model that never trains in training mode, parts of a model in evaluation mode (a frozen batch norm),
    and programs that read `model.training`, other than for a message or an assertion, are not reported.

    ## Why is this bad?
    There is no error. From the first evaluation on, the model trains without dropout, and its batch norms no
    longer learn their statistics. Two ranks print the share of elements that a dropout of 0.5 sets to zero:

        step 1: dropout has set 0.5 to zero
        step 2: dropout has set 0.0 to zero

    Call `model.train()` after the evaluation.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html (`eval`)
    """

    code = "FSDP419"
    name = "trained-in-evaluation-mode"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        trained: dict[str, Called] = {}
        evaluated: dict[str, Called] = {}
        for event in trace.of(Called):
            if event.training is None or event.inside is not None or event.ranks.partial:
                continue
            if event.grad in (GradMode.OFF, GradMode.INFERENCE) and not event.training:
                evaluated.setdefault(event.module, event)
            if event.grad is not GradMode.ON or not _is_trained(trace, event):
                continue
            if event.training:
                trained[event.module] = event
                evaluated.pop(event.module, None)
            elif event.module in trained and event.module in evaluated and event.site not in seen:
                seen.add(event.site)
                yield self.finding(
                    event,
                    f"`{class_name(trace, event.module)}` trains in evaluation mode after it was evaluated",
                    help="Call `model.train()` after the evaluation.",
                    because=[
                        (evaluated[event.module], "evaluated here, and in evaluation mode since"),
                        (trained[event.module], "trained in training mode before"),
                    ],
                )


def _is_trained(trace: Trace, event: Called) -> bool:
    """Whether a backward pass and a step of an optimizer follow a forward of a sharded model."""
    if not event.collective or trace.sharded_within(event.module, event) is None:
        return False
    held = optimizers_over(trace, event.module)
    has_gradients = False
    for other in trace.after(event, BackwardRun, Called, OptimizerStepped):
        if isinstance(other, BackwardRun):
            has_gradients = True
        elif isinstance(other, OptimizerStepped):
            if other.optimizer in held:
                return has_gradients
        elif isinstance(other, Called) and not has_gradients and other.inside is None:
            if other.module == event.module:
                return False  # another forward, whose output may be the loss
    return False

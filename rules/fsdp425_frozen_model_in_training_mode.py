"""FSDP425: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, Called, GradMode, StateLoaded, Trace, WeightsSet
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import class_name


class FrozenModelInTrainingMode(Rule):
    """A frozen model has dropout, or a frozen part new statistics, because it is in training mode.

    ## What it does
    Finds the forwards, in a training loop, of a model whose parameters are all frozen, which has a dropout of
    `torch.nn` above zero, and which nothing has set to evaluation mode.

    Also finds the forwards of a sharded model in training mode, of which a part is frozen and has a BatchNorm, such
    as the vision tower of a multimodal model, or has dropout and runs under `torch.no_grad()`, such as the teacher in
    a module of teacher and student.

    A model whose weights the program updates (an average of the trained model), dropout in parts of a model whose
    gradients pass through it, models that a library returns, and programs that read `model.training` are not reported.

    ## Why is this bad?
    There is no error. A new module is in training mode, and `requires_grad_(False)` does not change that. Each
    forward of a teacher or reference then drops other elements, and the student learns from the noise. Two ranks
    print how far two outputs for the same batch are from each other:

        the teacher differs from itself by 1.22

    Call `teacher.eval()`.

    A BatchNorm in training mode updates its running statistics in each forward, also under `torch.no_grad()`. FSDP
    does not broadcast buffers, as `DistributedDataParallel` does: each rank gets statistics of its own batches, an
    evaluation gives other results on each rank, and a checkpoint has the statistics of one rank. `model.train()` sets
    the frozen part to training mode again after each evaluation.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout.html
    - https://docs.pytorch.org/docs/stable/notes/autograd.html (evaluation mode and `requires_grad` are independent)
    """

    code = "FSDP425"
    name = "frozen-model-in-training-mode"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        yield from self._parts(trace)
        seen = set()
        modes: dict[str, set[bool | None]] = {}
        for event in trace.of(Called):
            if event.inside is None:
                modes.setdefault(event.module, set()).add(event.training)
        for event in trace.of(Called):
            if not event.drops_while_frozen or not event.in_loop or event.module in seen:
                continue
            if modes[event.module] == {True} and _in_training(trace, event):
                seen.add(event.module)
                yield self.finding(
                    event,
                    f"all parameters of `{class_name(trace, event.module)}` are frozen, but it is in training mode, "
                    "and its dropout changes its outputs at random",
                    help="Call `eval()` of the model before the training loop.",
                )

    def _parts(self, trace: Trace) -> Iterator[Finding]:
        """Frozen parts whose BatchNorms follow the data of each rank, or whose targets are noisy."""
        seen = set()
        for event in trace.of(Called):
            if not event.in_loop or trace.sharded_within(event.module) is None:
                continue
            for part, effect in (
                (
                    event.drifting,
                    "its BatchNorm updates its running statistics with the batches of each rank",
                ),
                (event.dropping, "its dropout changes its outputs at random"),
            ):
                call = _call_of(trace, event, part)
                if call is None or part in seen or not _in_training(trace, event):
                    continue
                if part == event.drifting or call.grad is GradMode.OFF:
                    seen.add(part)
                    yield self.finding(
                        event,
                        f"all parameters of `{class_name(trace, part)}` are frozen, but it is in training mode, and "
                        f"{effect}",
                        help="Call `eval()` of the frozen part after each `train()` of the model, as in a `train()` "
                        "method of the model.",
                        because=[(call, "the frozen part is called here")],
                    )


def _call_of(trace: Trace, event: Called, part: str) -> Called | None:
    """A call of a part inside a call of the model."""
    if not part:
        return None
    return next((one for one in Groups(trace).nested_calls(event) if one.module == part), None)


def _in_training(trace: Trace, event: Called) -> bool:
    """Whether a backward pass follows, and nothing updates the weights of the module in a loop."""
    if next(iter(trace.after(event, BackwardRun)), None) is None:
        return False
    updates = [(other, other.modules) for other in trace.of(WeightsSet)]
    loads = [(other, (other.into,)) for other in trace.of(StateLoaded)]
    for other, modules in (*updates, *loads):
        related = any(trace.related(one, event.module) for one in modules)
        if other.in_loop and (related or not modules):
            return False
    return True

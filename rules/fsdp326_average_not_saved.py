"""FSDP326: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import AverageUnsaved, OptimizerStepped, Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.resumed_training import resumed_models


class AverageNotSaved(Rule):
    """A checkpoint has the model and its optimizer, and not the moving average of the weights.

    ## What it does
    Finds a program that writes a checkpoint with the states of a sharded model and of its optimizer, restores both
    and trains on, and that keeps a moving average of the weights in an object of its own. The class of the object has
    `state_dict` and `load_state_dict`, but no code calls them.

    An average whose class cannot save its state is not reported: the program may begin a new one on purpose. Neither
    is an object that any code may save otherwise, because it is in a container, because a function gets it that is
    not followed, or because its tensors are read from outside of the class.

    ## Why is this bad?
    There is no error. The resumed run has the trained weights and an average that begins anew, so that an evaluation
    or an export with the average uses other weights than without the stop. Two ranks train 8 steps, once without a
    stop and once with one after 4 steps, and print the sums of the averages:

        average without a stop: 1.69
        average after a resume: 2.33

    Put `average.state_dict()` into the checkpoint, and call `average.load_state_dict()` after the load.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/optim.html (`AveragedModel`, exponential moving averages)
    - https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html (a checkpoint for resuming training)
    """

    code = "FSDP326"
    name = "average-not-saved"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete:
            return
        seen = set()
        for event in trace.of(AverageUnsaved):
            families = {part for module in event.modules for part in trace.family(module)}
            for model, restored, saved in resumed_models(trace):
                steps = trace.after(restored, OptimizerStepped)
                step = next(iter(steps), None)
                if step is None or model not in families or event.site in seen:
                    continue
                seen.add(event.site)
                yield self.finding(
                    event,
                    f"the checkpoint restores `{class_name(trace, model)}` and its optimizer, and not this average: "
                    f"nothing calls `state_dict` of `{event.class_name}`",
                    help="Save the state of the average in the checkpoint, and load it.",
                    because=[
                        (saved, "the checkpoint is written here"),
                        (restored, "the model is restored here"),
                        (step, "trains on"),
                    ],
                )

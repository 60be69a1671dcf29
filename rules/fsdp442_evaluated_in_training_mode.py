"""FSDP442: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.data_passes import noisy_evaluations


class EvaluatedInTrainingMode(Rule):
    """A sharded model is evaluated in training mode, so its dropout changes the result at random.

    ## What it does
    Finds a pass over a `DataLoader` that calls a sharded model without gradients and without a backward pass, if
    the model is trained elsewhere, is in training mode, has dropout of torch.nn, and is never called in evaluation mode.

    A model with BatchNorm is not reported: such a pass may be there for its statistics. Neither is one that is called
    again and again with the same batch, which measures how sure it is: `[model(batch) for _ in range(8)]`.

    ## Why is this bad?
    There is no error. The loss of the evaluation is too large, and another one each time, so a comparison with the best
    one so far decides by chance. Two ranks that evaluate the same model twice print:

        the losses of two evaluations differ

    Call `model.eval()` before the evaluation and `model.train()` after it.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html (`eval`)
    """

    code = "FSDP442"
    name = "evaluated-in-training-mode"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterable[Finding]:
        if not trace.complete:
            return
        seen = set()
        for begun, call in noisy_evaluations(trace):
            if call.site in seen or trace.sharded_within(call.module, call) is None:
                continue
            seen.add(call.site)
            yield self.finding(
                call,
                f"`{class_name(trace, call.module)}` is evaluated in training mode, and its dropout changes the result "
                "at random",
                help="Call `eval()` of the model before the evaluation, and `train()` after it.",
                because=[(begun, "evaluated with these data")],
            )

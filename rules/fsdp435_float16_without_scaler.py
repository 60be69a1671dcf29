"""FSDP435: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    GradientScaled,
    OptimizerStepped,
    PrecisionChosen,
    ScalerBuilt,
    Sharded,
    Trace,
)


class Float16WithoutScaler(Rule):
    """A sharded model computes in float16, and nothing scales the loss.

    ## What it does
    Finds `MixedPrecisionPolicy(param_dtype=torch.float16)` of a model that is trained, if the program has no
    gradient scaler and each loss is a mean of torch (`F.cross_entropy`, `nn.MSELoss()`, `.mean()`) that nothing
    multiplies.

    ## Why is this bad?
    The backward pass computes in float16, in which numbers below 6e-8 are zero and those below 6e-5 lose digits.
    There is no error: the small gradients are zero. One step on two ranks prints:

        56 of 64 weights did not move

    With the loss multiplied by 65536, as a scaler does at the beginning, all of them moved. Use
    `torch.bfloat16`, which has the range of float32, or a gradient scaler.

    ## Since
    FSDP2: torch 2.4.

    ## References
    - https://docs.pytorch.org/docs/stable/amp.html (gradient scaling)
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`MixedPrecisionPolicy`)
    """

    code = "FSDP435"
    name = "float16-without-scaler"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        chosen = [one for one in trace.of(PrecisionChosen) if one.param_dtype == "torch.float16"]
        if not chosen or not trace.complete or any(True for _ in trace.of(ScalerBuilt)):
            return
        used = any("mp_policy" in event.options for event in trace.of(Sharded))
        passes = list(trace.of(BackwardRun))
        stepped = any(True for _ in trace.of(OptimizerStepped))
        scaled = any(True for _ in trace.of(GradientScaled))
        if not used or not passes or not stepped or scaled or not all(e.of_mean for e in passes):
            return
        seen = set()
        for event in chosen:
            if event.site not in seen:
                seen.add(event.site)
                yield self.finding(
                    event,
                    "the model computes in float16 and nothing scales the loss, so small gradients are zero",
                    help="Use `torch.bfloat16`, or a gradient scaler.",
                    because=[(passes[0], "gradients computed here")],
                )

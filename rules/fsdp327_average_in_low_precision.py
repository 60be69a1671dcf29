"""FSDP327: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import AverageUpdated, Trace
from fsdplint.trace.groups import shard_events, sharded_by

# Weights whose updates these types mostly round away (1 - 0.99 is a little more than 0.01). An update
# is lost if it is smaller than half the distance of two numbers, which is 2**-9 (bfloat16) and 2**-12
# (float16) of the number.
_WEIGHTS = {"bfloat16": 0.0101, "float16": 0.00101}


class AverageInLowPrecision(Rule):
    """A moving average of the weights is kept in a type that rounds its updates away.

    ## What it does
    Finds updates of an average of the parameters of a sharded model (`average.lerp_(parameter, 1 - decay)`,
    `average.mul_(decay).add_(parameter, alpha=1 - decay)`) if the average certainly is in bfloat16 and the weight
    of the parameter is at most 0.01, or in float16 and it is at most 0.001.

    A decay that is a setting counts as the default that a dataclass or a settings file of the program has. A decay
    with a warm-up, `min(decay, step / (step + 10))`, counts as what it becomes.

    ## Why is this bad?
    There is no error. bfloat16 has 8 significant bits, so that a change of less than about 0.2 % of a number is
    rounded away. With a decay of 0.999, an update changes the average by a thousandth of its distance from the
    parameter: it is lost unless the parameter is more than twice or less than half of the average. Two ranks train
    a model for 200 steps and print how far two averages have moved:

        average in bfloat16: 0.016
        average in float32: 0.098

    Keep the average in float32, `parameter.detach().float().clone()`, and cast it where it is used. The model itself
    can compute in bfloat16 with `MixedPrecisionPolicy(param_dtype=torch.bfloat16)`, which leaves the parameters in
    float32.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://en.wikipedia.org/wiki/Bfloat16_floating-point_format
    - https://docs.pytorch.org/docs/stable/optim.html (`AveragedModel`, exponential moving averages)
    """

    code = "FSDP327"
    name = "average-in-low-precision"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        sharded = {part for shard in shard_events(trace) for part in sharded_by(shard)}
        seen = set()
        for event in trace.of(AverageUpdated):
            if event.weight > _WEIGHTS.get(event.dtype, 0) or event.site in seen:
                continue
            family = {part for module in event.modules for part in trace.family(module)}
            if not family & sharded:
                continue
            seen.add(event.site)
            lost = f"most updates with a weight of {event.weight:g} away"
            if not event.fixed:
                lost = f"most updates away: their weight becomes {event.weight:g} with the defaults"
            yield self.finding(
                event,
                f"the average is in {event.dtype}, which rounds {lost}",
                help="Keep the average in float32.",
            )

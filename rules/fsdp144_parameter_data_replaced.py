"""FSDP144: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Site, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.replaced_data import replaced_data


class ParameterDataReplaced(Rule):
    """A tensor is assigned to `.data` of a sharded parameter or gradient, which has no effect.

    ## What it does
    Finds `parameter.data = values` and `parameter.grad.data = values` for parameters that `fully_shard` has
    sharded: weights of an average that are put in for an evaluation, a second initialisation, a decay.

    An assignment before the sharding is fine, and so are methods in place (`parameter.data.mul_(0.9)`) and
    `parameter.grad = values`. An assignment that only moves or casts the parameter is not reported, nor one
    while `unshard()` or a forward may have gathered the parameter.

    ## Why is this bad?
    The parameter is a DTensor. FSDP computes with its local tensor, which the assignment does not touch. There
    is no error, also if the values are a DTensor of the same placement. On two ranks, the sum of the magnitudes
    of all parameters was 6.8636 before all of them were set to zero in this way, and after it. The step of an
    optimizer uses the gradients that it would have used without the assignment.

    FSDP1 with `use_orig_params=True` takes such values over before the next forward.

    Use `parameter.copy_(values)` under `torch.no_grad()`, with values that are a DTensor of the same placement
    (such as a clone of the parameter, or `distribute_tensor(values, parameter.device_mesh,
    parameter.placements)`).

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html: parameters become DTensors.
    """

    code = "FSDP144"
    name = "parameter-data-replaced"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for event, shard in replaced_data(groups):
            if event.site in seen:
                continue
            seen.add(event.site)
            what = "a gradient" if event.gradient else "a parameter"
            yield self.finding(
                event,
                f"this replaces the `data` of {what} of {groups.name(event.modules[0])}, which is sharded: it "
                "has no effect",
                help=_HELP[event.gradient],
                because=[(shard, "sharded here")],
            )


_HELP = {
    False: "Copy the values into the parameter: `parameter.copy_(values)` under `torch.no_grad()`, with values "
    "that are a DTensor of the same placement.",
    True: "Assign the gradient itself (`parameter.grad = values`), or change it in place.",
}

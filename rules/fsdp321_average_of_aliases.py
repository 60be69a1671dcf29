"""FSDP321: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import AliasAveraged, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import class_name, only_fsdp2, sharded_here


class AverageOfAliases(Rule):
    """An average of the weights shares the memory of the parameters.

    ## What it does
    Finds `lerp_`, `mul_(...).add_(...)` and `torch._foreach_lerp_` that update an average with the parameters of
    a model that `fully_shard` shards, if the average was made of the same parameters without a copy:
    `[p for p in model.parameters()]`, `list(model.parameters())`, `p.data` or `p.detach()`.

    A copy by `clone()` or `copy.deepcopy` is fine, and so is an average that each update replaces by a new
    tensor.

    ## Why is this bad?
    `detach()` and `data` give a tensor with the memory of the parameter. Each step of the optimizer also changes
    the "average", so that it always equals the weights, and `lerp_` changes nothing. There is no error. Two ranks
    print the distance of an average with a decay of 0.9 from the weights, after three steps:

        with detach(): 0.0
        with detach().clone(): 0.9

    `average.mul_(decay).add_(p, alpha=1 - decay)` also makes the weights smaller in each update.

    Clone the parameters: `p.detach().clone()`.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html
    """

    code = "FSDP321"
    name = "average-of-aliases"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups, seen = Groups(trace), set()
        for event in trace.of(AliasAveraged):
            if event.site in seen or any(guard.of_tensor for guard in event.guards):
                continue
            units = [groups.owner(module, event) or module for module in event.modules]
            if not all(only_fsdp2(trace, unit, event) for unit in units):
                continue
            seen.add(event.site)
            model = units[0]
            operation = event.api.removeprefix("torch.")
            yield self.finding(
                event,
                f"`{operation}` averages parameters of `{class_name(trace, model)}` with themselves: the "
                "average has no copies of them",
                help="Make the average of copies: `p.detach().clone()`.",
                because=sharded_here(trace, model, event),
            )

"""FSDP413: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Gathered, OptimizerStepped, Site, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import optimizer_named, optimizer_of
from fsdplint.trace.queries.gathered import (
    computes_gathered,
    holds_gathered_parameters,
    steps_over_gathered,
)


class GatheredAtStep(Rule):
    """A model is gathered between the backward pass and the optimizer step, and stays gathered.

    ## What it does
    Finds `unshard()`, and forwards that leave the root gathered, between the last backward pass and
    the step of the optimizer, where the next forward comes before the parameters are sharded again.
    Examples are a validation before the step, and an `unshard()` to look at weights.

    It reports nothing where something shards the parameters again in between: `reshard()`,
    `state_dict()`, `to()`, or `reshard_after_forward=True`.

    ## Why is this bad?
    The optimizer updates the sharded parameters. The module still has the gathered ones from before the
    step, and the next forward does not gather again but computes with them. No error is raised. With
    `unshard()` of every module before each step, the second loss equals the first to the last digit, and
    the later ones lag behind by one step. With a validation before each step, this happens to the
    parameters of the root alone, and the loss of the second step was 0.136 instead of 0.094.

    ## Since
    torch 2.4, the first with FSDP2. Until 2.7 the root stayed gathered with `reshard_after_forward=True`
    as well.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`: `FSDPModule.unshard`, `FSDPModule.reshard`.
    """

    code = "FSDP413"
    name = "gathered-at-step"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for step, gathered in steps_over_gathered(groups):
            built = optimizer_of(trace, step.optimizer)
            if built is None or step.ranks.partial:
                continue
            for module, event in gathered.items():
                later = computes_gathered(groups, module, step)
                if event.site in seen or later is None:
                    continue
                if holds_gathered_parameters(groups, built, module, event):
                    seen.add(event.site)
                    named = optimizer_named(built)
                    yield self._finding(groups, module, event, step, later, named)

    def _finding(
        self,
        groups: Groups,
        module: str,
        event: Called | Gathered,
        step: OptimizerStepped,
        later: Called,
        optimizer: str,
    ) -> Finding:
        outer = [later, *groups.enclosing_calls(later)][-1]
        return self.finding(
            event,
            f"{groups.name(module)} is gathered when {optimizer} steps, so that the next forward "
            f"computes with the parameters from before the step",
            help="Do this before the backward pass or after the step, or call `reshard()` on the "
            "module before the step.",
            because=[
                (step, "this step updates the sharded parameters"),
                (outer, "this forward uses the gathered ones"),
            ],
        )

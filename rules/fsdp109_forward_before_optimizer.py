"""FSDP109: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Event, OptimizerBuilt, Site, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import first_step, optimizer_named
from fsdplint.trace.queries.gathered import holds_gathered_parameters, optimizers_over_gathered

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class ForwardBeforeOptimizer(Rule):
    """An optimizer is built after a forward has left the sharded parameters gathered.

    ## What it does
    Finds optimizers that are built over a model that `fully_shard` shards, after a forward without a
    backward pass: a dry run, a sanity check of the validation, the first loss.

    The optimizer is fine if the parameters are sharded again before it is built: by a backward pass,
    `reshard()`, `state_dict()` or `to()`, or because of `reshard_after_forward=True`, which is the
    default for every module but the root.

    ## Why is this bad?
    A forward leaves the root's parameters gathered until the backward pass. `model.parameters()` then
    gives the gathered tensors, which never get a gradient. There is no error: the optimizer updates
    only the modules below the root. With a single `fully_shard(model)`, the loss of a fixed batch
    stayed at 0.22589 to the last digit.

    ## Fix safety
    Safe: `model.reshard()` goes before the optimizer. It is better to build the optimizer right
    after sharding, if the program allows that.

    ## Since
    torch 2.4, the first with FSDP2. Until 2.7 the root stayed gathered with
    `reshard_after_forward=True` as well.

    ## References
    - pytorch/pytorch#149205 and #131965.
    - torch docs, `torch.distributed.fsdp.fully_shard`: after the forward the registered parameters
      depend on `reshard_after_forward`.
    """

    code = "FSDP109"
    name = "forward-before-optimizer"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for built, whole in optimizers_over_gathered(groups):
            if built.site in seen or not built.complete:
                continue
            calls = [
                call
                for module, call in whole.items()
                if holds_gathered_parameters(groups, built, module, call)
            ]
            stepped = first_step(trace, built, after=built)
            if calls and stepped is not None:
                seen.add(built.site)
                yield self._finding(groups, built, calls, stepped)

    def _finding(
        self, groups: Groups, built: OptimizerBuilt, calls: list[Called], stepped: Event
    ) -> Finding:
        name = groups.name(groups.trace.unwrap(calls[0].module))
        outer = [calls[0], *groups.enclosing_calls(calls[0])][-1]
        return self.finding(
            built,
            f"{optimizer_named(built)} is built while a forward has left parameters of {name} "
            f"gathered, so it never updates the sharded ones",
            help="Build the optimizer right after sharding, or call `reshard()` on the model first.",
            because=[(outer, "gathered here"), (stepped, "stepped here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.fixes.reshard import reshard_before

        roots = _modules_to_reshard(program, finding.site)
        title = "Reshard the model before building the optimizer"
        return reshard_before(program, finding, roots, title)


def _modules_to_reshard(program: Program, site: Site) -> set[str] | None:
    """The modules to reshard before an optimizer; None where several are, or none in some trace."""
    found: set[str] = set()
    for trace in program.traces:
        groups = Groups(trace)
        for built, whole in optimizers_over_gathered(groups):
            if built.site == site:
                held = [
                    m
                    for m, call in whole.items()
                    if holds_gathered_parameters(groups, built, m, call)
                ]
                if len(held) != 1:
                    return None
                found.update(held)
    return found

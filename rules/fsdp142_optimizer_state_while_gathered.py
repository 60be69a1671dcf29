"""FSDP142: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Event, OptimizerBuilt, StateLoaded, StateTaken, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import happens_before_each, optimizer_named, optimizer_of
from fsdplint.trace.queries.gathered import (
    holds_group,
    sets_whole_state,
    states_over_gathered,
)

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class OptimizerStateWhileGathered(Rule):
    """A state is taken or set after a forward has left the parameters gathered.

    ## What it does
    Finds `get_optimizer_state_dict` and `set_optimizer_state_dict` after a forward of a model that
    `fully_shard` shards, such as the last one of an evaluation, that no backward pass follows. The forward
    leaves the parameters of the root gathered, and those of modules with `reshard_after_forward=False`.
    Also finds `set_model_state_dict` and `set_state_dict` with `full_state_dict=True` there.

    The call is fine if the parameters are sharded again before it: by a backward pass of a later forward, by
    `reshard()`, by the state of the model, which `get_state_dict` takes first, or because of
    `reshard_after_forward=True`. A root without parameters of its own gathers nothing.

    ## Why is this bad?
    The functions look for each parameter of the model among those of the optimizer. The optimizer has the
    sharded parameters, and the model has the gathered ones. The call raises an error that names neither the
    model nor the forward:

        KeyError: 0

    `full_state_dict=True` copies each rank's part of a whole tensor into the shards that the model has. A
    gathered parameter gets the whole tensor, and then the load fails:

        aten.copy_.default got mixed torch.Tensor and DTensor

    Call `model.reshard()` after the evaluation, or take the state of the model first.

    ## Fix safety
    Safe: `model.reshard()` goes before the call, which raises an error without it.

    ## Since
    torch 2.4, the first with FSDP2. Until 2.7 the root stayed gathered with
    `reshard_after_forward=True` as well.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`reshard_after_forward`)
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`get_optimizer_state_dict`)
    """

    code = "FSDP142"
    name = "optimizer-state-while-gathered"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen = set()
        for event, built, calls in _states(groups):
            if event.site in seen:
                continue
            seen.add(event.site)
            module, call = calls[0]
            outer = [call, *groups.enclosing_calls(call)][-1]
            name = groups.name(trace.unwrap(module))
            because: list[tuple[Event, str]] = [(outer, "gathered here")]
            if built is None:
                what = "this does not find the shards that take a whole state"
            else:
                what = f"this does not find them in {optimizer_named(built)}"
                because.append((built, "built with the sharded parameters"))
            yield self.finding(
                event,
                f"a forward has left parameters of {name} gathered, so {what}",
                help="Call `reshard()` on the model after the evaluation.",
                because=because,
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.fixes.reshard import reshard_before

        found = [
            [module for module, _ in calls]
            for trace in program.traces
            for event, _, calls in _states(Groups(trace))
            if event.site == finding.site
        ]
        single = all(len(modules) == 1 for modules in found)
        roots = {module for modules in found for module in modules} if single else None
        title = "Reshard the model before the state is taken or set"
        return reshard_before(program, finding, roots, title)


_Call = tuple[str, Called]  # the module that a call leaves gathered, and the call


def _states(
    groups: Groups,
) -> Iterator[tuple[StateTaken | StateLoaded, OptimizerBuilt | None, list[_Call]]]:
    """The states of which parameters are gathered at that point, and the optimizers that have them."""
    for event, whole in states_over_gathered(groups):
        of = event.of if isinstance(event, StateTaken) else event.into
        built = optimizer_of(groups.trace, of)
        if built is None and not sets_whole_state(event):
            continue
        calls = [
            (module, call)
            for module, call in whole.items()
            if not call.ranks.partial
            and happens_before_each(call, event)
            and _holds(groups, of, built, module, call)
        ]
        if calls:
            yield event, built, calls


def _holds(
    groups: Groups, of: str, built: OptimizerBuilt | None, module: str, call: Called
) -> bool:
    """Whether a state has parameters of the group of a module that a call leaves gathered."""
    if built is not None:
        return holds_group(groups, built, module, call)
    of = groups.trace.unwrap(of)
    return groups.trace.contains(of, module) and groups.holds_parameters(module, call)

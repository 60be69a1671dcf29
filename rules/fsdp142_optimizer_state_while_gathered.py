"""FSDP142: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, GuardKind, StateLoaded, StateTaken, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import optimizer_named, optimizer_of
from fsdplint.trace.queries.gathered import holds_group, optimizer_states_over_gathered


class OptimizerStateWhileGathered(Rule):
    """The state of an optimizer is taken or set after a forward has left its parameters gathered.

    ## What it does
    Finds `get_optimizer_state_dict` and `set_optimizer_state_dict` after a forward of a model that
    `fully_shard` shards, such as the last one of an evaluation, that no backward pass follows. The forward
    leaves the parameters of the root gathered, and those of modules with `reshard_after_forward=False`.

    The call is fine if the parameters are sharded again before it: by a backward pass of a later forward, by
    `reshard()`, by the state of the model, which `get_state_dict` takes first, or because of
    `reshard_after_forward=True`. A root without parameters of its own gathers nothing.

    ## Why is this bad?
    The functions look for each parameter of the model among those of the optimizer. The optimizer has the
    sharded parameters, and the model has the gathered ones. The call raises an error that names neither the
    model nor the forward:

        KeyError: 0

    Call `model.reshard()` after the evaluation, or take the state of the model first.

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

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen = set()
        for event, whole in optimizer_states_over_gathered(groups):
            built = optimizer_of(trace, event.of if isinstance(event, StateTaken) else event.into)
            if built is None or event.site in seen:
                continue
            calls = [
                (module, call)
                for module, call in whole.items()
                if _always_before(call, event) and holds_group(groups, built, module, call)
            ]
            if not calls:
                continue
            seen.add(event.site)
            module, call = calls[0]
            outer = [call, *groups.enclosing_calls(call)][-1]
            name = groups.name(trace.unwrap(module))
            yield self.finding(
                event,
                f"a forward has left parameters of {name} gathered, so this does not find them in "
                f"{optimizer_named(built)}",
                help="Call `reshard()` on the model after the evaluation.",
                because=[(outer, "gathered here"), (built, "built with the sharded parameters")],
            )


def _always_before(call: Called, event: StateTaken | StateLoaded) -> bool:
    """Whether all ranks make a call whenever the program comes to an event."""
    tests = [guard for guard in call.guards if guard.kind is GuardKind.VARYING]
    return not call.ranks.partial and all(guard in event.guards for guard in tests)

"""FSDP315: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, Layout, StateLoaded, StateTaken, Trace
from fsdplint.trace.queries.common import class_name


class ShardedStateAsWhole(Rule):
    """A sharded state dict is set as if rank 0 had a whole one to broadcast.

    ## What it does
    Finds `set_model_state_dict` with `full_state_dict=True` and `broadcast_from_rank0=True`, of a state
    that `model.state_dict()` or `get_model_state_dict` gave as shards.

    ## Why is this bad?
    The function sends the tensors of rank 0 to the other ranks. A DTensor cannot be sent so:

        NotImplementedError: Operator c10d.broadcast_.default does not have a sharding strategy registered.

    Leave both options out: each rank then loads its own shards. Or take the state with
    `full_state_dict=True`, too.

    ## Since
    torch 2.4, where `broadcast_from_rank0` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`StateDictOptions`)
    - pytorch/pytorch#164843
    """

    code = "FSDP315"
    name = "sharded-state-as-whole"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(StateLoaded):
            if not event.api.endswith("set_model_state_dict"):
                continue
            if event.layout is not Layout.SHARDED:
                continue
            if event.full is not True or event.broadcast is not True or event.site in seen:
                continue
            if trace.sharding(event.into, event) is None:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"each rank has its shards of the state that is set into "
                f"`{class_name(trace, event.into)}` as a whole state of rank 0",
                help="Leave out `full_state_dict` and `broadcast_from_rank0`.",
                because=_taken_states(trace, event),
            )


def _taken_states(trace: Trace, event: StateLoaded) -> list[tuple[Event, str]]:
    found = [one for one in trace.before(event, StateTaken) if one.state == event.state]
    return [(one, "taken as shards here") for one in found[-1:]]

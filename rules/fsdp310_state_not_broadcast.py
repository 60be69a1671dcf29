"""FSDP310: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, Loaded, Ranks, StateLoaded, StateTaken, Trace
from fsdplint.trace.queries.common import class_name, optimizer_of, side


class StateNotBroadcast(Rule):
    """A state dict that only rank 0 has is set on every rank without `broadcast_from_rank0`.

    ## What it does
    Finds `set_model_state_dict` and `set_optimizer_state_dict` with `full_state_dict=True` and without
    `broadcast_from_rank0=True`, on all ranks, of a state that is empty on all ranks but 0: it was taken
    with `full_state_dict=True, cpu_offload=True`, or read under a test of the rank, or taken under one
    from the model before it was sharded.

    ## Why is this bad?
    The other ranks raise an error (with `strict=False` they go on), and rank 0 waits for them:

        RuntimeError: The option indicates that model state_dict is required to save or load, but model
        state_dict is empty.

    ## Since
    torch 2.4, where `broadcast_from_rank0` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`StateDictOptions`)
    """

    code = "FSDP310"
    name = "state-not-broadcast"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(StateLoaded):
            if event.full is not True or event.broadcast is not False or event.ranks.partial:
                continue
            origin = _of_rank0(trace, event)
            if origin is None or event.site in seen:
                continue
            seen.add(event.site)
            built = optimizer_of(trace, event.into)
            name = built.class_name if built is not None else class_name(trace, event.into)
            yield self.finding(
                event,
                f"only rank 0 has the state that is set into `{name}` on every rank",
                help="Add `broadcast_from_rank0=True` to the options.",
                because=[origin],
            )


def _of_rank0(trace: Trace, event: StateLoaded) -> tuple[Event, str] | None:
    """The event that gave the state to one rank only; None if the others may have it."""
    if event.state is None:
        return None
    for taken in trace.before(event, StateTaken):
        if taken.state == event.state:
            if side(taken) is Ranks.ONE and not taken.collective:
                return taken, "taken on one rank only"
            whole = taken.rank0_only and not taken.ranks.partial
            return (taken, "empty on all ranks but rank 0") if whole else None
    for read in trace.before(event, Loaded):
        if read.state == event.state and side(read) is Ranks.ONE:
            return read, "read on one rank only"
    return None

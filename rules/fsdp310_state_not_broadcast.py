"""FSDP310: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Collective,
    Event,
    Layout,
    Loaded,
    Ranks,
    Sharding,
    StateLoaded,
    StateTaken,
    Trace,
)
from fsdplint.trace.queries.common import class_name, optimizer_of, side


class StateNotBroadcast(Rule):
    """A state dict that only rank 0 has is set on every rank, and not sent to the others.

    ## What it does
    Finds `set_model_state_dict` and `set_optimizer_state_dict` with `full_state_dict=True` and without
    `broadcast_from_rank0=True`, on all ranks, of a state that is empty on all ranks but 0: it was taken
    with `full_state_dict=True, cpu_offload=True`, or read under a test of the rank, or taken under one
    from the model before it was sharded, or it is a dict that only rank 0 fills. It also finds `set_state_dict` with
    `broadcast_from_rank0=True` where the state of the model is empty on all ranks but 0. It also finds `load_state_dict` of a model of FSDP1 on all
    ranks, of a full state that `FullStateDictConfig(rank0_only=True)` gave to rank 0 only, and `load_state_dict` of a
    model that is not sharded, on all ranks, of a state that was taken with `full_state_dict=True, cpu_offload=True`.

    ## Why is this bad?
    The other ranks raise an error (with `strict=False` they go on), and rank 0 waits for them:

        RuntimeError: The option indicates that model state_dict is required to save or load, but model
        state_dict is empty.

    `set_state_dict` takes an empty state of the model for a call that sets the optimizer alone. The other ranks then
    skip the model, while rank 0 sends its weights and waits. `set_model_state_dict` and
    `set_optimizer_state_dict` take empty states on the other ranks.

    ## Since
    torch 2.4, where `broadcast_from_rank0` came; always for FSDP1.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`StateDictOptions`)
    """

    code = "FSDP310"
    name = "state-not-broadcast"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(StateLoaded):
            by_fsdp1 = _gathers_by_fsdp1(trace, event)
            by_itself = _loads_by_itself(trace, event)
            skipped = _is_skipped(trace, event)
            needed = event.full and (event.broadcast is False or skipped)
            if event.ranks.partial or not (by_fsdp1 or by_itself or needed):
                continue
            origin = _of_rank0(trace, event)
            if (origin is None and not event.one_rank) or event.site in seen:
                continue
            if (by_fsdp1 or by_itself) and (
                origin is None or not _stays_on_rank0(trace, origin[0], event)
            ):
                continue
            seen.add(event.site)
            built = optimizer_of(trace, event.into)
            name = built.class_name if built is not None else class_name(trace, event.into)
            yield self.finding(
                event,
                f"only rank 0 has the state of `{name}`: `set_state_dict` skips the model on the other ranks, and rank 0 "
                "waits for them"
                if skipped
                else f"only rank 0 has the state that is set into `{name}` on every rank",
                help="Take the state with `rank0_only=False`."
                if by_fsdp1
                else "Take the state without `cpu_offload=True`, which gives it to all ranks."
                if by_itself
                else "Call `set_model_state_dict` and `set_optimizer_state_dict` instead."
                if skipped
                else "Add `broadcast_from_rank0=True` to the options.",
                because=[origin] if origin is not None else [],
            )


def _gathers_by_fsdp1(trace: Trace, event: StateLoaded) -> bool:
    """Whether `load_state_dict` of a model of FSDP1 takes a full state, which all ranks need."""
    return (
        event.api == "load_state_dict"
        and event.collective
        and event.layout is Layout.FULL
        and event.into in trace.modules
        and trace.sharded_within(event.into, event) is Sharding.FSDP1
    )


def _loads_by_itself(trace: Trace, event: StateLoaded) -> bool:
    """Whether each rank loads a state into a model of its own that is not sharded."""
    whole = event.into in trace.modules and trace.sharded_within(event.into, event) is None
    return event.api == "load_state_dict" and whole and event.strict is True


def _is_skipped(trace: Trace, event: StateLoaded) -> bool:
    """Whether a rank without a state of the model takes no part in sending it."""
    of_both = event.api.rpartition(".")[2] == "set_state_dict" and event.into in trace.modules
    return of_both and event.broadcast is True


def _stays_on_rank0(trace: Trace, origin: Event, event: StateLoaded) -> bool:
    """Whether a state was taken, and no code sends objects or tensors before it is loaded.

    A record has the state of rank 0, which the others may have got from it.
    """
    between = [one for one in trace.after(origin, Collective) if one.index < event.index]
    sends = any("broadcast" in one.api or "scatter" in one.api for one in between)
    return isinstance(origin, StateTaken) and not sends


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

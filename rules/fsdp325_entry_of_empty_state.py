"""FSDP325: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Collective, StateIndexed, StateTaken, Trace
from fsdplint.trace.queries.data_parallelism import begins_process_group

_TAKES = frozenset({"get_model_state_dict", "get_state_dict"})
_SENDS = ("broadcast", "scatter", "gather")


class EntryOfEmptyState(Rule):
    """Every rank reads an entry of a state dict that only rank 0 has.

    ## What it does
    Finds `state["head.weight"]` and `state.pop("head.weight")` on all ranks, where the state comes from
    `get_model_state_dict` or `get_state_dict` with `full_state_dict=True, cpu_offload=True`. With both options, only
    rank 0 gets the state, and all other ranks get an empty dict.

    Code under a further test, or whose errors the program catches, is not reported, nor states that the program
    sends to the other ranks or edits itself. A check finds keys that are constants.

    ## Why is this bad?
    The other ranks stop, and rank 0 waits for them in its next collective:

        KeyError: 'head.weight'

    Read the entry under `if dist.get_rank() == 0:`, or take the state without `cpu_offload`, which gives it to all
    ranks.

    ## Since
    torch 2.2, where `StateDictOptions` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`StateDictOptions`)
    """

    code = "FSDP325"
    name = "entry-of-empty-state"
    severity = Severity.ERROR
    static_only = True
    all_configurations = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not begins_process_group(trace):
            return  # one process only
        seen = set()
        for event in trace.of(StateIndexed):
            taken = _state_taken_at(trace, event)
            if taken is None or event.site in seen:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f'every rank reads `"{event.key}"` of this state, but it is empty on all ranks but rank 0',
                help="Read it under `if dist.get_rank() == 0:`, or take the state without `cpu_offload`.",
                because=[(taken, "empty on all ranks but rank 0")],
            )

    def concerns(self, trace: Trace, finding: Finding) -> bool:
        """Whether a trace reads the entry on one rank only.

        The rank is a constant then with the settings of the finding: those of a single process.
        """
        return any(
            event.site == finding.site and event.ranks.partial for event in trace.of(StateIndexed)
        )


def _state_taken_at(trace: Trace, event: StateIndexed) -> StateTaken | None:
    """Where a state was taken that is empty on some of the ranks that read an entry of it."""
    if event.ranks.partial:
        return None
    for taken in trace.before(event, StateTaken):
        if taken.state != event.state:
            continue
        of_model = taken.api.rpartition(".")[2] in _TAKES and taken.of in trace.modules
        tested = any(guard not in taken.guards for guard in event.guards)
        if not (of_model and taken.rank0_only) or taken.ranks.partial or tested:
            return None
        if event.in_loop and not taken.in_loop:
            return None  # a loop over the state has no turns on the other ranks
        between = (one for one in trace.after(taken, Collective) if one.index < event.index)
        sent = any(word in one.api for one in between for word in _SENDS)
        return None if sent else taken
    return None

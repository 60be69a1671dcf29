"""FSDP328: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import StateCallRefused, Trace
from fsdplint.trace.queries.common import class_name


class RefusedStateCall(Rule):
    """A function that sets the state of a sharded model gets arguments that it refuses.

    ## What it does
    Finds `set_model_state_dict`, `set_optimizer_state_dict` and `set_state_dict` of a sharded model

    - with `broadcast_from_rank0=True` and without `full_state_dict=True`;
    - with an empty state of the optimizer on all ranks (`optim_state_dict={}`), without `broadcast_from_rank0=True`.

    With `full_state_dict=True, cpu_offload=True`, an empty state is allowed and is not reported.

    ## Why is this bad?
    The call raises an error on all ranks:

        ValueError: full_state_dict must be True when broadcast_from_rank0 is True.

        RuntimeError: The option indicates that model state_dict is required to save, or load but optim
        state_dict is empty.

    Pass `StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)`. To load a model without its optimizer, call
    `set_model_state_dict`.

    ## Since
    torch 2.4, where `broadcast_from_rank0` came; torch 2.2 for an empty state.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`StateDictOptions`)
    """

    code = "FSDP328"
    name = "refused-state-call"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(StateCallRefused):
            if event.site in seen or trace.sharded_within(event.of, event) is None:
                continue
            seen.add(event.site)
            name = class_name(trace, event.of)
            yield self.finding(
                event,
                f"`{event.api}` gets an empty optimizer state for `{name}`, and raises an error"
                if event.empty
                else f"`{event.api}` of `{name}` gets `broadcast_from_rank0=True` without `full_state_dict=True`, and "
                "raises an error",
                help="Pass the optimizer's state, or call `set_model_state_dict`, which sets the model alone."
                if event.empty
                else "Add `full_state_dict=True` to the options.",
            )

"""FSDP202: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import STATE_APIS, MigrationRule
from fsdplint.trace import Fsdp1Used, Trace
from fsdplint.trace.queries.common import fsdp1_on_fsdp2


class StateDictTypeContext(MigrationRule):
    """`FSDP.state_dict_type` or `FSDP.set_state_dict_type` is used.

    ## What it does
    Finds `with FSDP.state_dict_type(...)` blocks and `FSDP.set_state_dict_type(...)`.

    ## Why is this bad?
    They are deprecated (FutureWarning: "FSDP.state_dict_type() and FSDP.set_state_dict_type() are
    being deprecated"), and they have no effect on a model that `fully_shard` shards.

    ## Fix safety
    Safe, as a part of the migration of the whole program: `get_model_state_dict` and
    `set_model_state_dict` with the same kind of state. A whole state on rank 0's GPU (`rank0_only=True,
    offload_to_cpu=False`) moves to rank 0's CPU. The getters and setters work with FSDP1 and FSDP2, so the
    fix also applies if a framework wraps the model.

    ## Since
    torch 2.2, the first with these getters and setters.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    """

    code = "FSDP202"
    name = "fsdp1-state-dict-type"
    severity = Severity.WARNING
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Fsdp1Used):
            api = event.api.removeprefix("FSDP.")
            if api in STATE_APIS and not fsdp1_on_fsdp2(trace, event):
                yield self.finding(
                    event,
                    f"`FSDP.{api}` is deprecated and has no effect in FSDP2",
                    help="Use `get_model_state_dict` and `set_model_state_dict` of "
                    "`torch.distributed.checkpoint.state_dict`.",
                )

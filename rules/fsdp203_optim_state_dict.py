"""FSDP203: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import OPTIMIZER_APIS, REKEY, MigrationRule
from fsdplint.trace import Event, Fsdp1Used, StateTaken, Trace, Wrapped
from fsdplint.trace.queries.common import fsdp1_on_fsdp2


class OptimStateDict(MigrationRule):
    """The optimizer's state is taken or loaded by a method of the FSDP class.

    ## What it does
    Finds `FSDP.optim_state_dict`, `FSDP.optim_state_dict_to_load` and the older `full_optim_state_dict`,
    `scatter_full_optim_state_dict`, `shard_full_optim_state_dict` and similar methods.

    ## Why is this bad?
    They work only with FSDP1's flat parameters. For a model that `fully_shard` shards, they end with
    `AttributeError: 'NoneType' object has no attribute 'optim_state_dict_config'`, and the older ones are
    deprecated. Only `rekey_optim_state_dict` also works with the states of FSDP2. It is found where FSDP1 wraps the
    model, because the new states have names and need no other keys.

    ## Fix safety
    Safe, as a part of the migration of the whole program: `get_optimizer_state_dict` and
    `set_optimizer_state_dict` return and accept the same states, keyed by parameter name. A state that FSDP1 put
    on every rank's CPU is then on rank 0's CPU if only rank 0 writes it, and on every rank's device otherwise.

    ## Since
    torch 2.2, the first with these getters and setters.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    """

    code = "FSDP203"
    name = "fsdp1-optim-state-dict"
    severity = Severity.WARNING
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        fsdp2 = [e.site for e in trace.of(Fsdp1Used) if fsdp1_on_fsdp2(trace, e)]
        wraps = any(True for _ in trace.of(Wrapped))
        for event in trace.events:
            api = _api(event)
            if api == REKEY and not wraps:
                continue
            what = (
                "is a method of FSDP1"
                if api == REKEY
                else "works only with FSDP1's flat parameters"
            )
            if api in OPTIMIZER_APIS and event.site not in fsdp2:
                yield self.finding(
                    event,
                    f"`FSDP.{api}` {what}",
                    help="Use `get_optimizer_state_dict` and `set_optimizer_state_dict` of "
                    "`torch.distributed.checkpoint.state_dict`.",
                )


def _api(event: Event) -> str:
    if isinstance(event, Fsdp1Used):
        return event.api.removeprefix("FSDP.")
    if isinstance(event, StateTaken) and event.api.startswith("FSDP."):
        return event.api.removeprefix("FSDP.")
    return ""

"""FSDP299: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import OPTIMIZER_APIS, STATE_APIS, MigrationRule
from fsdplint.trace import Fsdp1Used, Trace
from fsdplint.trace.queries.common import fsdp1_on_fsdp2

HANDLED = (*STATE_APIS, *OPTIMIZER_APIS, "ShardedGradScaler")


class OtherFsdp1Use(MigrationRule):
    """Another part of FSDP1's API is used than its constructor, states and training methods.

    ## What it does
    Finds what remains of FSDP1's API: `summon_full_params`, `fsdp_modules`, `register_comm_hook`, `enable_wrap`
    and `wrap`, `FSDP.apply` and others.

    ## Why is this bad?
    None of it does anything for a model that `fully_shard` shards (`summon_full_params` gathers nothing there,
    without an error), so the program is not migrated while it is there.

    ## Fix safety
    Safe, as a part of the migration of the whole program. What is read or computed with whole parameters is
    gathered by `unshard()` and `reshard()`, or read with `full_tensor()`; loops that set each parameter set the
    sharded ones; `fsdp_modules` asks for `FSDPModule`; `wrap` becomes `fully_shard`. Where something else is
    done, or FSDP2 has no counterpart (communication hooks), nothing is rewritten and the reason is given.

    ## Since
    torch 2.6, where `fully_shard` became public.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    - pytorch/torchtitan, `docs/fsdp.md`
    """

    code = "FSDP299"
    name = "other-fsdp1-use"
    severity = Severity.INFO
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Fsdp1Used):
            api = event.api.removeprefix("FSDP.")
            if api not in HANDLED and not fsdp1_on_fsdp2(trace, event):
                yield self.finding(
                    event,
                    "this is a subclass of FSDP1's wrapper"
                    if api == "subclass"
                    else f"`{api}` is FSDP1's",
                    help="FSDP2 has other means, or none: see the rule's page.",
                )

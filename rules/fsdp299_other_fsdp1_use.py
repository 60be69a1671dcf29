"""FSDP299: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import OPTIMIZER_APIS, STATE_APIS, MigrationRule
from fsdplint.trace import Fsdp1Used, Trace
from fsdplint.trace.queries.common import fsdp1_on_fsdp2

HANDLED = (*STATE_APIS, *OPTIMIZER_APIS, "ShardedGradScaler")


class OtherFsdp1Use(MigrationRule):
    """Another part of FSDP1's API is used: not its constructor, states or training methods.

    ## What it does
    Finds uses of the rest of FSDP1's API: `summon_full_params`, `fsdp_modules`, `register_comm_hook`, `enable_wrap`
    and `wrap`, `FSDP.apply` and others.

    ## Why is this bad?
    FSDP2 does not have these APIs, or they do something else with a model that `fully_shard` shards, so they
    block the migration if they cannot be rewritten. `summon_full_params` gathers nothing, without an error.

    ## Fix safety
    Safe, as a part of the migration of the whole program. Code that reads whole parameters or computes
    with them uses `unshard()` and `reshard()`, or `full_tensor()`. Loops that set each parameter set the sharded
    parameters. `fsdp_modules` becomes a test for `FSDPModule`, and `wrap` becomes `fully_shard`. Other uses, and APIs
    without a counterpart in FSDP2 (communication hooks), block the migration, and the finding says why.

    ## Since
    torch 2.6, the first with a public `fully_shard`.

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
                    else f"`{api}` is part of FSDP1",
                    help="FSDP2 has another API for this, or none: see the page of the rule.",
                )

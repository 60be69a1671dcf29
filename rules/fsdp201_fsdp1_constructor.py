"""FSDP201: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import MigrationRule
from fsdplint.trace import Trace, Wrapped


class Fsdp1Constructor(MigrationRule):
    """A model is wrapped by FSDP1 (`FullyShardedDataParallel`).

    ## What it does
    Finds calls of `FullyShardedDataParallel(...)`, and rewrites the whole program to FSDP2's `fully_shard`
    if every use of FSDP1 in it can be rewritten faithfully. Otherwise, the finding names the file and line that
    block the migration, and the program stays as it is.

    ## Why is this bad?
    FSDP1 is no longer developed: its maintainers answer reports with the migration guide. FSDP2 keeps each
    parameter's name, dtype and `requires_grad`, frees memory without `recordStream` stalls, and is
    the base of new features of torch.

    ## Fix safety
    Safe: the migrated program trains the same model from the same weights, with the same units, the same
    precision and the same sharding. The title of the fix names changes in cost or in details. A loop
    shards the blocks in FSDP1's order; inner modules do not cast their inputs if FSDP1 did not; `device_id`
    becomes the current device.

    ## Since
    torch 2.6, the first with a public `fully_shard`, which the migrated program needs.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    - pytorch/torchtitan, `docs/fsdp.md`
    """

    code = "FSDP201"
    name = "fsdp1-constructor"
    severity = Severity.INFO
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Wrapped):
            inner = trace.modules.get(event.inner)
            name = inner.class_name if inner is not None else "a model"
            yield self.finding(
                event,
                f"`{name}` is wrapped by FSDP1 (`FullyShardedDataParallel`)",
                help="Shard the blocks and then the model with `fully_shard`.",
            )

"""FSDP204: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import MigrationRule, in_fsdp1
from fsdplint.trace import Clipped, Trace


class Fsdp1ClipMethod(MigrationRule):
    """Gradients are clipped by FSDP1's method `clip_grad_norm_`.

    ## What it does
    Finds `model.clip_grad_norm_(...)` of a model that `FullyShardedDataParallel` wraps.

    ## Why is this bad?
    The method is correct for FSDP1, but a module that `fully_shard` shards does not have it:
    `torch.nn.utils.clip_grad_norm_` supports DTensors.

    ## Fix safety
    Safe, as a part of the migration of the whole program. The norm becomes a DTensor. If the program
    uses it for more than `.item()`, the fix adds `.full_tensor()`, which gives a plain tensor.

    ## Since
    torch 2.6, the first with a public `fully_shard`.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    - pytorch/torchtitan, `docs/fsdp.md`
    """

    code = "FSDP204"
    name = "fsdp1-clip-method"
    severity = Severity.INFO
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Clipped):
            if event.api == "method" and any(in_fsdp1(trace, m) for m in event.modules[:1]):
                yield self.finding(
                    event,
                    "`clip_grad_norm_()` is a method of FSDP1 only",
                    help="Call `torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)`.",
                )

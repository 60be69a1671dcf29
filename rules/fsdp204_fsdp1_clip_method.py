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
    It is right for FSDP1, but a module that `fully_shard` shards has no such method:
    `torch.nn.utils.clip_grad_norm_` knows DTensors.

    ## Fix safety
    Safe, as a part of the migration of the whole program. The norm is a DTensor then; where it is used for
    more than its `.item()`, `.full_tensor()` makes it the plain tensor that it was.

    ## Since
    torch 2.6, where `fully_shard` became public.

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

"""FSDP205: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import MigrationRule, in_fsdp1
from fsdplint.trace import BackwardRun, SyncSwitched, Trace


class Fsdp1NoSync(MigrationRule):
    """Gradients are accumulated under FSDP1's `no_sync`.

    ## What it does
    Finds `with model.no_sync():` of a model that `FullyShardedDataParallel` wraps, also if the program chooses it
    (`with model.no_sync() if accumulate else nullcontext():`). `getattr(model, "no_sync", nullcontext)` is
    found if a backward pass follows: without FSDP1, it returns the default, and nothing accumulates.

    ## Why is this bad?
    The method is correct for FSDP1, but a module that `fully_shard` shards does not have it. It has the
    switch `set_requires_gradient_sync` instead.

    ## Fix safety
    Safe, as a part of the migration of the whole program: the switch is off in the block of `no_sync`, and
    on behind it. With parameters in bfloat16 and gradients reduced in float32, FSDP2 accumulates in
    float32, and FSDP1 in bfloat16.

    ## Since
    torch 2.6, the first with a public `fully_shard`.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    - pytorch/torchtitan, `docs/fsdp.md`
    """

    code = "FSDP205"
    name = "fsdp1-no-sync"
    severity = Severity.INFO
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(SyncSwitched):
            if event.optional and not any(True for _ in trace.after(event, BackwardRun)):
                continue  # an FSDP2 model has no such method
            if event.api == "no_sync" and in_fsdp1(trace, event.module):
                yield self.finding(
                    event,
                    "`no_sync()` is a method of FSDP1 only",
                    help="Call `model.set_requires_gradient_sync(...)` before each backward pass.",
                )

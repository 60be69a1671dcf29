"""FSDP205: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import MigrationRule, in_fsdp1
from fsdplint.trace import BackwardRun, SyncSwitched, Trace


class Fsdp1NoSync(MigrationRule):
    """Gradients are accumulated under FSDP1's `no_sync`.

    ## What it does
    Finds `with model.no_sync():` of a model that `FullyShardedDataParallel` wraps, also where it is chosen
    (`with model.no_sync() if accumulate else nullcontext():`). `getattr(model, "no_sync", nullcontext)` is
    found where a backward pass follows: without FSDP1 it gives the default, and nothing accumulates.

    ## Why is this bad?
    It is right for FSDP1, but a module that `fully_shard` shards has no such method: it has the switch
    `set_requires_gradient_sync`.

    ## Fix safety
    Safe, as a part of the migration of the whole program: the switch is off where `no_sync` held, and on
    again behind it. With parameters in bfloat16 and gradients reduced in float32, FSDP2 accumulates in
    float32 and FSDP1 did in bfloat16.

    ## Since
    torch 2.6, where `fully_shard` became public.

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
                continue  # FSDP2's model has no such method, and nothing is reduced
            if event.api == "no_sync" and in_fsdp1(trace, event.module):
                yield self.finding(
                    event,
                    "`no_sync()` is a method of FSDP1 only",
                    help="Call `model.set_requires_gradient_sync(...)` before each backward pass.",
                )

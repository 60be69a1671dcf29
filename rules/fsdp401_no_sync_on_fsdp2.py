"""FSDP401: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import SyncSwitched, Trace
from fsdplint.trace.queries.common import asked_for, class_name, only_fsdp2, sharded_here

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class NoSyncOnFsdp2(Rule):
    """`no_sync()` is called on a module that `fully_shard` shards.

    ## What it does
    Finds `model.no_sync()` on a model that `fully_shard` shards.

    ## Why is this bad?
    DDP and FSDP1 are wrappers with a method `no_sync()`. `fully_shard` changes the class of the model to
    an `FSDPModule`, which has no such method. The first accumulated step ends with

        AttributeError: 'FSDPNet' object has no attribute 'no_sync'

    FSDP2 accumulates gradients without communication by a switch:
    `model.set_requires_gradient_sync(False)` before the micro-batches that only accumulate, and
    `model.set_requires_gradient_sync(True)` before the last backward of each step.

    ## Fix safety
    Safe: the body of the `with` block moves between the two switches. Synchronisation is on again after
    it, as `no_sync` left it. If the block ends early (`break`, `continue`, `return`), the second switch
    is in a `finally`. There is no fix for a context that is created elsewhere and passed around.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
      (`FSDPModule.set_requires_gradient_sync`)
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    """

    code = "FSDP401"
    name = "no-sync-on-fsdp2"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(SyncSwitched):
            if event.api != "no_sync" or asked_for(event, "no_sync"):
                continue
            if not only_fsdp2(trace, event.module, event):
                continue
            name = class_name(trace, event.module)
            yield self.finding(
                event,
                f"`{name}` is sharded by `fully_shard` and has no method `no_sync()`",
                help="Call `set_requires_gradient_sync(False)` before the micro-batches that only "
                "accumulate, and `set_requires_gradient_sync(True)` after them.",
                because=sharded_here(trace, event.module, event),
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.no_sync import rewrite_no_sync
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        if found is None:
            return None
        rewrite = Rewrite()
        if not rewrite_no_sync(rewrite, *found):
            return None
        return rewrite.fix("Use `set_requires_gradient_sync`", Safety.SAFE)

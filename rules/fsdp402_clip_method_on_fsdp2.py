"""FSDP402: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Clipped, Trace
from fsdplint.trace.queries.common import asked_for, class_name, only_fsdp2, sharded_here

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class ClipMethodOnFsdp2(Rule):
    """`clip_grad_norm_()` is called as a method of a module that `fully_shard` shards.

    ## What it does
    Finds `model.clip_grad_norm_(max_norm)` on a model that `fully_shard` shards.

    ## Why is this bad?
    Only FSDP1's wrapper has this method, because `torch.nn.utils.clip_grad_norm_` cannot handle its
    gradients. An `FSDPModule` has no such method:

        AttributeError: 'FSDPNet' object has no attribute 'clip_grad_norm_'

    FSDP2's gradients are DTensors, and `torch.nn.utils.clip_grad_norm_` computes their norm over
    all ranks.

    ## Fix safety
    Safe: `torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)` clips by the same norm as FSDP1's
    method. It returns a DTensor, which cannot be formatted (`f"{norm:.3f}"` raises a TypeError). If the
    program uses the norm for more than `.item()`, the fix adds `.full_tensor()`, which gives a plain
    tensor.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    - pytorch/torchtitan, `docs/fsdp.md`
    """

    code = "FSDP402"
    name = "clip-method-on-fsdp2"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Clipped):
            if event.api != "method" or asked_for(event, "clip_grad_norm_"):
                continue
            for module in event.modules[:1]:
                if only_fsdp2(trace, module, event):
                    yield self._finding(trace, event, module)

    def _finding(self, trace: Trace, event: Clipped, module: str) -> Finding:
        return self.finding(
            event,
            f"`{class_name(trace, module)}` is sharded by `fully_shard` and has no method "
            f"`clip_grad_norm_()`",
            help="Call `torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)`; it returns "
            "a DTensor; log `.full_tensor()` of it.",
            because=sharded_here(trace, module, event),
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.clipping import clip_with_utils
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        if found is None:
            return None
        rewrite = Rewrite()
        if not clip_with_utils(rewrite, program, *found):
            return None
        return rewrite.fix("Clip with torch.nn.utils.clip_grad_norm_", Safety.SAFE)

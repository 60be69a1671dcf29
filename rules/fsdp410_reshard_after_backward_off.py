"""FSDP410: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.sync_switches import left_off

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class ReshardAfterBackwardOff(Rule):
    """`set_reshard_after_backward(False)` leaves parameters gathered at the optimizer step.

    ## What it does
    Finds `model.set_reshard_after_backward(False)` if it holds for the backward before an optimizer
    step, and nothing calls `reshard()` before the step.

    ## Why is this bad?
    The optimizer updates the sharded parameters, but the modules still hold the gathered ones, and the
    next forward computes with these. There is no error: the second of three steps has the same loss as
    the first to the last digit, and later steps lag behind. Between backward and step,
    `model.parameters()` has no gradients: `clip_grad_norm_` returns 0 and clips nothing.

    torch's documentation requires `reshard()` on every FSDP module before the parameters are changed; a
    call on the root only is not enough.

    ## Fix safety
    Unsafe: the call is removed, and every backward reshards, as it does by default. The program then
    gathers again for each micro-batch; `set_reshard_after_backward(is_last_micro_batch)` avoids that.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
      (`FSDPModule.set_reshard_after_backward`)
    """

    code = "FSDP410"
    name = "reshard-after-backward-off"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        seen = set()
        for found in left_off(trace, "set_reshard_after_backward"):
            if found.switch.site in seen:
                continue
            seen.add(found.switch.site)
            yield self.finding(
                found.switch,
                f"`{class_name(trace, found.switch.module)}` still holds gathered parameters when "
                f"the optimizer steps, and later forwards use these old values",
                help="Reshard in the last backward (`set_reshard_after_backward(True)`), or call "
                "`reshard()` on every FSDP module before the step.",
                because=[
                    (found.backward, "parameters left gathered here"),
                    (found.step, "sharded parameters updated here"),
                ],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        if found is None:
            return None
        source, call = found
        if not isinstance(source.parent(call), cst.Expr):
            return None
        rewrite = Rewrite()
        rewrite.delete_statement(source, call)
        return rewrite.fix("Reshard after every backward", Safety.UNSAFE)

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
    """Parameters are still gathered when the optimizer steps: `set_reshard_after_backward(False)`.

    ## What it does
    Finds `model.set_reshard_after_backward(False)` where the backward before an optimizer step runs
    with it and nothing calls `reshard()` before the step.

    ## Why is this bad?
    The optimizer updates the sharded parameters, but the modules still hold the gathered ones, and the
    next forward computes with those: the second of three steps has the loss of the first to the last
    digit, and later ones lag behind. Between backward and step the gradients are not to be found at
    `model.parameters()` either: `clip_grad_norm_` gives 0 and clips nothing. No error is raised.

    The documentation asks for `reshard()` on every FSDP module before the parameters are changed;
    on the root alone it is not enough.

    ## Fix safety
    Unsafe: the call is taken away, so that every backward reshards, as it does by default. That is what
    the step needs, but it also gives up the all-gathers that were to be saved between micro-batches;
    `set_reshard_after_backward(is_last_micro_batch)` keeps those.

    ## Since
    torch 2.4, where `fully_shard` came.

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
                f"the optimizer steps, and goes on computing with them",
                help="Reshard in the last backward (`set_reshard_after_backward(True)`), or call "
                "`reshard()` on every FSDP module before the step.",
                because=[
                    (found.backward, "this backward leaves the parameters gathered"),
                    (found.step, "this step updates the sharded ones"),
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

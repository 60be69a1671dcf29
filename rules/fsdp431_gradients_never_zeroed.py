"""FSDP431: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.zeroed_gradients import steps_with_used_gradients

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class GradientsNeverZeroed(Rule):
    """The gradients of a sharded model are never set to zero between two optimizer steps.

    ## What it does
    Finds an optimizer of torch that steps in each turn of a loop, if each turn adds gradients to those that
    the step before has used. Nothing calls `zero_grad()` of the optimizer or of a module, and nothing reads or
    assigns `.grad`.

    ## Why is this bad?
    There is no error. Each step uses the sum of the gradients of all steps before. A bound of the norm hides the
    growth, because it scales the sum back. Two ranks print the norm of the gradient in three steps on
    the same batch, with a learning rate of zero:

        norms: 1.80 3.60 5.40

    ## Fix safety
    The fix calls `zero_grad()` after the step. It is safe: nothing else uses the gradients of a step.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
    """

    code = "FSDP431"
    name = "gradients-never-zeroed"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    static_only = True
    changes_steps = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for module, backward, step in steps_with_used_gradients(trace):
            if step.site in seen:
                continue
            seen.add(step.site)
            yield self.finding(
                step,
                f"nothing sets the gradients of `{class_name(trace, module)}` to zero, so each step uses those of "
                f"all steps before it",
                help="Call `zero_grad()` of the optimizer after each step.",
                because=[(backward, "adds to the gradients")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at, receiver

        found = call_at(finding.site)
        if found is None:
            return None
        source, call = found
        optimizer = receiver(source, call)
        is_step = isinstance(call.func, cst.Attribute) and call.func.attr.value == "step"
        if optimizer is None or not is_step or not isinstance(source.parent(call), cst.Expr):
            return None
        if call.args:  # `scaler.step(optimizer)`
            return None
        rewrite = Rewrite()
        rewrite.insert_after(source, source.statement(call), [f"{optimizer}.zero_grad()"])
        return rewrite.fix("Set the gradients to zero after the step", Safety.SAFE)

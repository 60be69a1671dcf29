"""FSDP129: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace, Wrapped
from fsdplint.trace.queries.common import class_name

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class Fsdp1NonuniformRequiresGrad(Rule):
    """FSDP1 puts frozen and trainable parameters into one flat parameter.

    ## What it does
    Finds `FullyShardedDataParallel(model, ...)` without `use_orig_params=True` over a partly
    frozen model, if frozen and trainable parameters share a unit: a module that the policy wraps, or the
    remaining modules. `peft.get_peft_model` freezes a model and puts trainable adapters into its layers.

    The call is not reported if it is unknown what the policy wraps or which parameters are frozen.

    ## Why is this bad?
    Without `use_orig_params=True` all parameters of a unit become one, which either has a gradient or not:

        ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`

    or, with `ModuleWrapPolicy`,

        ValueError: 0 has both parameters with requires_grad=True and False.

    ## Fix safety
    Safe: `use_orig_params=True`, because the program does not run without it. It costs memory for
    gradients that are not needed; a frozen part with its own wrapper costs none.

    ## Since
    torch 2.0, which has `use_orig_params`. FSDP2 has no flat parameters.

    ## References
    - torch docs, `FullyShardedDataParallel`, `use_orig_params`.
    - mosaicml/llm-foundry#414, pytorch/pytorch#100945.
    """

    code = "FSDP129"
    name = "fsdp1-nonuniform-requires-grad"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Wrapped):
            if event.mixes:
                yield self.finding(
                    event,
                    f"FSDP1 cannot put frozen and trainable parameters of "
                    f"`{class_name(trace, event.inner)}` into one flat parameter",
                    help="Wrap with `use_orig_params=True`, or wrap the frozen part by itself.",
                )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.fixes.wrapper_options import set_option

        found = call_at(finding.site)
        rewrite = Rewrite()
        if found is None or not set_option(rewrite, *found, "use_orig_params", "True"):
            return None
        rewrite.depends_on(*found)
        return rewrite.fix("Wrap with use_orig_params=True", Safety.SAFE)

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
    """Frozen and trainable parameters come into one flat parameter of FSDP1.

    ## What it does
    Finds `FullyShardedDataParallel(model, ...)` without `use_orig_params=True` over a model of which a
    part is frozen, where frozen and trainable parameters share a unit: what is not wrapped by itself, or one
    of the modules that the policy wraps.

    It says nothing where it does not see what the policy wraps, or which parameters are frozen.

    ## Why is this bad?
    Without `use_orig_params=True` all parameters of a unit become one, which has a gradient or has none:

        ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`

    and with `ModuleWrapPolicy`

        ValueError: 0 has both parameters with requires_grad=True and False.

    ## Fix safety
    Safe: `use_orig_params=True`, as the program does not run otherwise. It costs memory for gradients
    that nobody needs; a frozen part that is wrapped by itself costs none.

    ## Since
    torch 2.0, which has `use_orig_params`. FSDP2 has no flat parameters.

    ## References
    - torch docs, `FullyShardedDataParallel`, `use_orig_params`.
    - mosaicml/llm-foundry#414.
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
                    f"frozen and trainable parameters of `{class_name(trace, event.inner)}` come into one "
                    f"flat parameter, which FSDP1 refuses",
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

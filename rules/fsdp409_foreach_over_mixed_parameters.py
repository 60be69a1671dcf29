"""FSDP409: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import MixedParameters, Sharded, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class ForeachOverMixedParameters(Rule):
    """Sharded parameters and ignored parameters go into one foreach operation.

    ## What it does
    Finds `torch.nn.utils.clip_grad_norm_(model.parameters(), ...)` and optimizers with `foreach=True` or
    `fused=True` over `model.parameters()`, if trained parameters were passed to `fully_shard` as
    `ignored_params`.

    ## Why is this bad?
    The parameters that FSDP shards are DTensors, and the ignored ones are plain tensors. A foreach or
    fused operation accepts either kind, but not both. The first step ends with

        RuntimeError: aten._foreach_mul_.Scalar got mixed torch.Tensor and DTensor, need to convert
        all torch.Tensor to DTensor before calling distributed operators!

    (`aten._fused_adamw_.default` for `fused=True`, and `aten._foreach_norm.Scalar` in `clip_grad_norm_`,
    which also fails with `foreach=False`.)

    ## Fix safety
    Unsafe: `foreach=True` of an optimizer becomes `foreach=False`, which steps one parameter after the
    other. There is no fix for `fused=True` and for clipping: use one parameter group for each kind, and
    compute one norm from the norms of both kinds.

    ## Since
    torch 2.7, the first with `ignored_params`.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`ignored_params`)
    - pytorch/pytorch#183207
    """

    code = "FSDP409"
    name = "foreach-over-mixed-parameters"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        sharded = [e for e in trace.of(Sharded) if "ignored_params" in e.options]
        seen = set()
        for event in trace.of(MixedParameters):
            before = [e for e in sharded if e.index < event.index]
            if not before or event.site in seen:
                continue
            seen.add(event.site)
            way = {"foreach": "`foreach=True`", "fused": "`fused=True`"}.get(event.api)
            yield self.finding(
                event,
                f"{way or f'`{event.api}`'} processes sharded parameters together with "
                f"`ignored_params`, which are not sharded: this fails",
                help="Put the ignored parameters into a parameter group of their own, or step without foreach."
                if way
                else "Compute one norm from the norms of both kinds, and clip each kind by it.",
                because=[(before[-1], "parameters ignored here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at

        found, event = call_at(finding.site), finding.events[0]
        if found is None or not isinstance(event, MixedParameters) or event.api != "foreach":
            return None
        source, call = found
        for arg in call.args:
            name = arg.keyword.value if arg.keyword is not None else ""
            if name == "foreach" and isinstance(arg.value, cst.Name) and arg.value.value == "True":
                rewrite = Rewrite()
                rewrite.replace(source, arg.value, "False")
                return rewrite.fix("Step one parameter after the other", Safety.UNSAFE)
        return None

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
    """Sharded parameters and those that `ignored_params` left whole go into one foreach operation.

    ## What it does
    Finds `torch.nn.utils.clip_grad_norm_(model.parameters(), ...)` and optimizers with `foreach=True` or
    `fused=True` over `model.parameters()`, where `fully_shard` was given `ignored_params` that are
    trained.

    ## Why is this bad?
    The parameters that FSDP shards are DTensors, the ignored ones plain tensors. A foreach or fused
    operation takes either, not both; the first step ends with

        RuntimeError: aten._foreach_mul_.Scalar got mixed torch.Tensor and DTensor, need to convert
        all torch.Tensor to DTensor before calling distributed operators!

    (`aten._fused_adamw_.default` for `fused=True`, `aten._foreach_norm.Scalar` in `clip_grad_norm_`,
    which fails with `foreach=False` as well.)

    ## Fix safety
    Unsafe: an optimizer with `foreach=True` becomes one with `foreach=False`, which steps one parameter
    after the other. Where the norm is clipped, and for `fused=True`, you have to say what is meant:
    parameter groups of one kind each, and a norm of both kinds put together by hand.

    ## Since
    torch 2.7, where `ignored_params` came.

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
                f"{way or f'`{event.api}`'} takes sharded parameters and those that "
                f"`ignored_params` left whole together, which fails",
                help="Put them into parameter groups of their own, or step without foreach."
                if way
                else "Clip the sharded parameters and the whole ones by a norm of both that is put "
                "together by hand.",
                because=[(before[-1], "parameters are left out here")],
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

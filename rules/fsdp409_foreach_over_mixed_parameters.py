"""FSDP409: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import MixedParameters, ProcessGroupInit, Sharded, Trace
from fsdplint.trace.queries.backends import ONLY_ACCELERATORS

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

_SINGLY = "Step one parameter after the other"
_ONE_NORM = "Compute one norm from the norms of both kinds, and clip each kind by it."
_GROUPS = "Put the ignored parameters into a parameter group of their own, or step without foreach."
# By what the event says: the words for it, and the advice.
_WAYS = {
    "foreach": ("`foreach=True`", _GROUPS),
    "fused": ("`fused=True`", _GROUPS),
    "default": ("foreach, which is the default on GPUs,", _GROUPS),
}


class ForeachOverMixedParameters(Rule):
    """Sharded parameters and ignored parameters go into one foreach operation.

    ## What it does
    Finds `torch.nn.utils.clip_grad_norm_(model.parameters(), ...)` and optimizers with `foreach=True` or
    `fused=True` over `model.parameters()`, if trained parameters were passed to `fully_shard` as
    `ignored_params`. Also finds optimizers of torch with neither argument in a program for GPUs (its
    process group has a backend such as NCCL), where foreach is the default.

    ## Why is this bad?
    The parameters that FSDP shards are DTensors, and the ignored ones are plain tensors. A foreach or
    fused operation accepts either kind, but not both. The first step ends with

        RuntimeError: aten._foreach_mul_.Scalar got mixed torch.Tensor and DTensor, need to convert
        all torch.Tensor to DTensor before calling distributed operators!

    (`aten._fused_adamw_.default` for `fused=True`, and `aten._foreach_norm.Scalar` in `clip_grad_norm_`,
    which also fails with `foreach=False`.)

    ## Fix safety
    Safe where the optimizer has neither argument: it gets `foreach=False`, which is the default on the
    CPU. Unsafe where it has `foreach=True`, which becomes `foreach=False`: it then steps one parameter
    after the other. There is no fix for `fused=True` and for clipping: use one parameter group for each
    kind, and compute one norm from the norms of both kinds.

    ## Since
    torch 2.7, the first with `ignored_params`.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`ignored_params`)
    - pytorch/pytorch#183207
    """

    code = "FSDP409"
    name = "foreach-over-mixed-parameters"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        begun: ProcessGroupInit | None = None
        sharded: Sharded | None = None
        seen = set()
        for event in trace:
            if isinstance(event, ProcessGroupInit):
                begun = event
            elif isinstance(event, Sharded) and "ignored_params" in event.options:
                sharded = event
            elif not isinstance(event, MixedParameters) or sharded is None or event.site in seen:
                continue
            elif event.api != "default" or _takes_foreach(begun, sharded):
                seen.add(event.site)
                yield self._finding(event, sharded)

    def _finding(self, event: MixedParameters, sharded: Sharded) -> Finding:
        what, advice = _WAYS.get(event.api, (f"`{event.api}`", _ONE_NORM))
        return self.finding(
            event,
            f"{what} processes sharded parameters together with `ignored_params`, which are not "
            "sharded: this fails",
            help=advice,
            because=[(sharded, "parameters ignored here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at

        found, event = call_at(finding.site), finding.events[0]
        if found is None or not isinstance(event, MixedParameters):
            return None
        source, call = found
        rewrite = Rewrite()
        if event.api == "default" and call.args:
            rewrite.insert(source, source.span(call.args[-1])[1], ", foreach=False")
            return rewrite.fix(_SINGLY, Safety.SAFE)
        given = [arg for arg in call.args if arg.keyword and arg.keyword.value == "foreach"]
        if not given or not isinstance(given[0].value, cst.Name) or given[0].value.value != "True":
            return None
        rewrite.replace(source, given[0].value, "False")
        return rewrite.fix(_SINGLY, Safety.UNSAFE)


def _takes_foreach(begun: ProcessGroupInit | None, sharded: Sharded) -> bool:
    """Whether the parameters are on accelerators, where foreach is the default."""
    policy = str(sharded.options.get("offload_policy", ""))
    backend = begun.backend if begun is not None else None
    return "CPUOffloadPolicy" not in policy and any(
        one in ONLY_ACCELERATORS for part in (backend or "").split(",") for one in part.split(":")
    )

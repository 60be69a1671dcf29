"""FSDP206: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Fsdp1Used, Trace
from fsdplint.trace.queries.common import asked_for, class_name, fsdp1_on_fsdp2, sharded_here

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

API = "summon_full_params"


class SummonOnFsdp2(Rule):
    """`summon_full_params` is used on a model that `fully_shard` shards.

    ## What it does
    Finds `FSDP.summon_full_params(model)` where `fully_shard` shards the model.

    ## Why is this bad?
    The function looks for FSDP1's wrappers in the model, finds none and gathers nothing, without a warning. In the
    block, the parameters are still DTensors with this rank's part. Printed or measured values are those of a part.
    A computation with a plain tensor ends with "aten.mm.default got mixed torch.Tensor and DTensor". A write to a
    row of a weight is lost (`weight[0].zero_()` left no zero in it). A call as a method of the model ends with

        AttributeError: 'FSDPNet' object has no attribute 'summon_full_params'

    ## Fix safety
    Unsafe: `unshard()` before the block and `reshard()` after it, for every module that is sharded itself. In between,
    the whole model is on every rank. There is a fix only if the lines of the block do not write parameters (writes
    to gathered parameters are lost), and not with `offload_to_cpu`, `rank0_only` or `with_grads`.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://github.com/pytorch/pytorch/issues/137129 (it was left out of FSDP2 on purpose)
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`FSDPModule.unshard`)
    """

    code = "FSDP206"
    name = "summon-on-fsdp2"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    fix_since = "2.6"

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Fsdp1Used):
            if event.api.removeprefix("FSDP.") != API or asked_for(event, API):
                continue
            if event.module is None or not fsdp1_on_fsdp2(trace, event):
                continue
            name = class_name(trace, event.module)
            yield self.finding(
                event,
                f"`{API}` is part of FSDP1 and gathers nothing of `{name}`, which `fully_shard` shards",
                help="To read whole parameters, call `unshard()` and `reshard()` of every FSDP module, or "
                "`full_tensor()` of one parameter. To write them, use `set_model_state_dict` with "
                "`full_state_dict=True`.",
                because=sharded_here(trace, event.module, event),
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.summon import rewrite_summon
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        event = finding.events[0]
        if found is None or event.ranks.partial or not isinstance(event, Fsdp1Used):
            return None
        several = _sharded_parts(program, event)
        if several is None:
            return None
        rewrite = Rewrite()
        if not rewrite_summon(rewrite, *found, several=several):
            return None
        return rewrite.fix("Gather with `unshard()`", Safety.UNSAFE)


def _sharded_parts(program: Program, event: Fsdp1Used) -> bool | None:
    """Whether parts of the model are sharded by themselves; None where the model itself is not.

    Also None where another trace has another kind of model there.
    """
    several = False
    for trace in program.traces:
        for other in trace.of(Fsdp1Used):
            if other.site != event.site:
                continue
            if other.module is None or not fsdp1_on_fsdp2(trace, other):
                return None
            known = trace.shardings(other)
            root = trace.unwrap(other.module)
            if root not in known:
                return None
            parts = [part for part in trace.submodules(root) if part != root]
            unknown = any(not trace.modules[part].children_known for part in (root, *parts))
            several = several or unknown or any(part in known for part in parts)
    return several

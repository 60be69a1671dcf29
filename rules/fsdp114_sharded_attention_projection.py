"""FSDP114: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Gathered, Sharded, Trace
from fsdplint.trace.groups import Groups, sharded_by

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

ATTENTION = "torch.nn.MultiheadAttention"
PROJECTION = "torch.nn.Linear"


class ShardedAttentionProjection(Rule):
    """The output projection of `nn.MultiheadAttention` is sharded separately.

    ## What it does
    Finds `fully_shard` of the `out_proj` of an `nn.MultiheadAttention`, by name or in a loop that
    shards every `nn.Linear` of a model: `out_proj` is a subclass of `nn.Linear`. The attention may be
    part of an `nn.TransformerEncoderLayer` or another layer of torch.

    Sharding the attention as a whole is fine, and so is a loop that skips `out_proj`.

    ## Why is this bad?
    FSDP2 gathers a module's parameters when the module is called. The attention does not call its
    projection; it passes the weight to a function: `RuntimeError: aten.addmm.default got mixed torch.Tensor
    and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!`

    ## Fix safety
    Unsafe: the test of the loop becomes `type(module) is nn.Linear`, which excludes subclasses. The
    projection then stays in the group of the attention. There is no fix for loops of another form.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch source, `torch.distributed.fsdp.wrap.FORCE_LEAF_MODULES`: FSDP1 does not wrap inside an
      attention for the same reason.
    """

    code = "FSDP114"
    name = "sharded-attention-projection"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        gathered = {event.module for event in trace.of(Gathered)}
        seen = set()
        for event in trace.of(Sharded):
            if event.site in seen or len(event.group) > 1 or not trace.certainty.of_module(event):
                continue
            if not _is_projection(groups, *sharded_by(event)) or event.module in gathered:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                "`out_proj` of a `MultiheadAttention` is sharded separately, but the attention reads its "
                "weight without calling it, so nothing gathers the weight",
                help="Do not shard `out_proj` (the test `type(module) is nn.Linear` excludes it), or "
                "shard the attention as a whole.",
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.exact_class import test_exact_class

        rewrite = Rewrite()
        if not test_exact_class(rewrite, program, finding.site, PROJECTION):
            return None
        return rewrite.fix("Do not shard `out_proj` separately", Safety.UNSAFE)


def _is_projection(groups: Groups, module: str) -> bool:
    """Whether the module is the output projection of torch's attention."""
    parent = next(groups.ancestors(module), None)
    if parent is None:
        return False
    info = groups.trace.modules[parent]
    return info.qualified_class == ATTENTION and info.children.get("out_proj") == module

"""FSDP115: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Replicated, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import only_fsdp2, sharded_here


class DdpOverFsdp2(Rule):
    """`DistributedDataParallel` wraps a model that `fully_shard` shards.

    ## What it does
    Finds `DistributedDataParallel(model)` where `model` or a part of it is sharded by `fully_shard`.

    ## Why is this bad?
    DDP broadcasts the parameters of the model, and cannot broadcast sharded ones:
    `NotImplementedError: Operator c10d.broadcast_.default does not have a sharding strategy registered`
    (`This operation would remove or reshape sharded dimension 0` if a shard is uneven), or, if only
    a part is sharded, `RuntimeError: aten.cat.default got mixed torch.Tensor and DTensor`.
    FSDP2 reduces the gradients over all ranks itself. With a 2D mesh, it also replicates.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`: a 2D mesh replicates over dimension 0 and shards
      over dimension 1.
    """

    code = "FSDP115"
    name = "ddp-over-fsdp2"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen = set()
        for event in trace.of(Replicated):
            # DDP works without its initial broadcast, which code that is not followed may turn off.
            if event.site in seen or {"init_sync", "**"} & set(event.options):
                continue
            because = sharded_here(trace, event.inner, event)
            if not because or not only_fsdp2(trace, event.inner, event):
                continue
            if not all(trace.certainty.of_module(one) for one, _ in because):
                continue
            if trace.producer == "static" and trace.family_escaped(event.inner):
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"`DistributedDataParallel` wraps {groups.name(event.inner)}, which `fully_shard` shards: "
                f"DDP cannot broadcast sharded parameters",
                help="Remove DDP: FSDP2 reduces the gradients itself. To replicate the model as well, "
                "pass `fully_shard` a mesh of shape (replicas, shards).",
                because=because,
            )

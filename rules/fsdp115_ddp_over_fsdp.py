"""FSDP115: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import MeshBuilt, Replicated, Trace, Wrapped
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import only_fsdp2, sharded_here


class DdpOverFsdp(Rule):
    """`DistributedDataParallel` wraps a model that FSDP shards.

    ## What it does
    Finds `DistributedDataParallel(model)` where `model` or a part of it is sharded by `fully_shard`, or
    by FSDP1 over all ranks.

    ## Why is this bad?
    DDP broadcasts the parameters of the model, and cannot broadcast sharded ones:
    `NotImplementedError: Operator c10d.broadcast_.default does not have a sharding strategy registered`
    (`This operation would remove or reshape sharded dimension 0` if a shard is uneven), or, if only
    a part is sharded, `RuntimeError: aten.cat.default got mixed torch.Tensor and DTensor`.
    FSDP2 reduces the gradients over all ranks itself. With a 2D mesh, it also replicates.

    Under FSDP1, the backward fails (`Function SplitWithSizesBackward0 returned an invalid gradient`), or
    with `use_orig_params=True` the constructor of DDP
    (`params[0] in this process with sizes [0] appears not to match sizes of the same param in process 0`).
    A model of FSDP1 that is sharded in a smaller group, or by `NO_SHARD`, can be replicated by DDP.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`: a 2D mesh replicates over dimension 0 and shards
      over dimension 1.
    """

    code = "FSDP115"
    name = "ddp-over-fsdp"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen = set()
        for event in trace.of(Replicated):
            # DDP works without its initial broadcast, which code that is not followed may turn off.
            if event.site in seen or {"init_sync", "**"} & set(event.options):
                continue
            because = sharded_here(trace, event.inner, event)
            by_fsdp1 = _sharded_over_all_ranks(trace, event)
            if not because or not (by_fsdp1 or only_fsdp2(trace, event.inner, event)):
                continue
            if not all(trace.certainty.of_module(one) for one, _ in because):
                continue
            if trace.producer == "static" and _may_be_ignored(trace, event):
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"`DistributedDataParallel` wraps {groups.name(trace.unwrap(event.inner))}, which "
                f"{'FSDP1' if by_fsdp1 else '`fully_shard`'} shards: "
                "DDP cannot synchronise sharded parameters",
                help="Remove DDP: FSDP reduces the gradients itself. To replicate the model as well, "
                + (
                    "use `ShardingStrategy.HYBRID_SHARD`."
                    if by_fsdp1
                    else "pass `fully_shard` a mesh of shape (replicas, shards)."
                ),
                because=because,
            )


def _may_be_ignored(trace: Trace, event: Replicated) -> bool:
    """Whether code out of sight may have told DDP to ignore the sharded parameters.

    DDP refuses a model without any other parameters, as a root of FSDP2 is.
    """
    root = trace.unwrap(event.inner)
    return root not in trace.shardings(event) and trace.escaped(event.inner, event)


_SHARDS = (None, "FULL_SHARD", "SHARD_GRAD_OP")  # strategies over all ranks of the group


def _sharded_over_all_ranks(trace: Trace, event: Replicated) -> bool:
    """Whether FSDP1 shards the model of an event, or a part of it, over the ranks of DDP."""
    if {"process_group", "device_mesh"} & set(event.options):
        return False  # of DDP
    parts = set(trace.submodules(event.inner))
    wrapped = [one for one in trace.before(event, Wrapped) if one.module in parts]
    return bool(wrapped) and all(
        not {"process_group", "**"} & set(one.options)
        and ("device_mesh" not in one.options or _has_all_ranks(trace, one))
        and _last_name(one.options.get("sharding_strategy")) in _SHARDS
        for one in wrapped
    )


def _has_all_ranks(trace: Trace, event: Wrapped) -> bool:
    """Whether a wrapper certainly gets a mesh of one dimension, which has all ranks."""
    return any(mesh.mesh == event.mesh and len(mesh.shape) == 1 for mesh in trace.of(MeshBuilt))


def _last_name(option: object) -> str | None:
    return None if option is None else str(option).rpartition(".")[2]

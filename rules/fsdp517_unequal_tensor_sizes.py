"""FSDP517: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Collective, Trace


class UnequalTensorSizes(Rule):
    """The ranks give tensors of different size to one collective.

    ## What it does
    Finds `all_reduce`, `reduce`, `broadcast`, `all_gather_into_tensor` and `reduce_scatter_tensor` with a
    tensor whose size depends on the rank (`torch.zeros(2 + rank)`), on a list that each rank fills by
    a test of its own data, or on elements that it selects by its data (`nonzero`, `masked_select`).
    `fsdplint run` finds it for all tensors.

    `all_gather` is reported if its buffers have the size of the rank's own tensor
    (`[torch.empty_like(x) for _ in range(world_size)]`). Otherwise it is not, nor is `all_to_all`, because NCCL
    accepts tensors of different size there.

    ## Why is this bad?
    A collective does not check the sizes of the other ranks. With gloo, one rank got a result and the other
    failed with "Connection closed by peer". With NCCL, the ranks wait for each other or mix up data.

    ## Since
    All versions.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html (`TORCH_DISTRIBUTED_DEBUG=DETAIL` checks the
      shapes)
    """

    code = "FSDP517"
    name = "unequal-tensor-sizes"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Collective):
            if not event.sizes_differ or event.site in seen or event.ranks.partial:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"`{event.api.rpartition('.')[2]}` gets a tensor of another size on each rank",
                help="Give all ranks the same size: pad the tensor to the largest one, or use "
                "`all_gather_object`.",
            )

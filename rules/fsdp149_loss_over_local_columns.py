"""FSDP149: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Collective, ColumnsCompared, Trace


class LossOverLocalColumns(Rule):
    """A loss compares with the columns that one rank of tensor parallelism has of an output.

    ## What it does
    Finds `cross_entropy` (or `nn.CrossEntropyLoss`) of the output of a layer that a plan for `parallelize_module`
    splits with `ColwiseParallel()`, whose `output_layouts` and `use_local_output` have their defaults. The output may
    be returned by the forward of a model, and be reshaped or cast. `to_local()` of a DTensor, which the layer gives with
    `use_local_output=False`, has the columns of the rank, too.

    Also finds `argmax`, `topk`, `softmax` and `log_softmax` over the last dimension of such an output, if no collective
    follows that may put together what the ranks have found.

    ## Why is this bad?
    `ColwiseParallel` splits the output by its last dimension, `Shard(-1)`. With two ranks, each has the scores of half
    of the classes, as a plain tensor. A target of the other half raises "IndexError: Target 37 is out of bounds". If all
    targets are small, there is no error, and the loss leaves half of the classes out.

    Pass `output_layouts=Replicate()` for the last layer. To keep the scores split, pass `use_local_output=False` and
    compute the loss under `loss_parallel()`.

    ## Since
    torch 2.3, where `ColwiseParallel` is public (seen with torch 2.13).

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html (`ColwiseParallel`, `loss_parallel`)
    - https://docs.pytorch.org/tutorials/intermediate/TP_tutorial.html
    """

    code = "FSDP149"
    name = "loss-over-local-columns"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(ColumnsCompared):
            if event.site in seen or event.parallel is None:
                continue
            if event.api and _may_be_completed(trace, event):
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"`{event.api}` compares the columns that each rank has of this output alone, as `ColwiseParallel` "
                "splits it"
                if event.api
                else "each rank has some of the columns of this output alone, as `ColwiseParallel` splits it",
                help="Pass `output_layouts=Replicate()` for the layer, or call `full_tensor()` on a DTensor.",
                because=[(trace.events[event.parallel], "split here")],
            )


def _may_be_completed(trace: Trace, event: ColumnsCompared) -> bool:
    """Whether a collective may put together what the ranks have chosen, before the next forward."""
    for other in trace.after(event, Called, Collective):
        if isinstance(other, Collective):
            return True
        if isinstance(other, Called) and other.inside is None:
            return False
    return not trace.complete

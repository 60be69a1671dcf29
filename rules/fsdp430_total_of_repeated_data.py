"""FSDP430: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, TensorParallel, Trace


class TotalOfRepeatedData(Rule):
    """A loss is divided by a total that counts the data of each tensor parallel group several times.

    ## What it does
    Finds the backward pass of a loss that the program multiplies by the number of data-parallel ranks
    (`mesh["dp"].size()`), and divides by a number that `all_reduce` sums over all ranks, where the position in this
    dimension chooses the data, and `parallelize_module` uses another dimension.

    A sum over the group of the data-parallel ranks is fine, and so is a factor of the number of all ranks, which
    counts the data as often as the sum does.

    ## Why is this bad?
    The ranks of a tensor parallel group have the same batch, so that the sum over all ranks counts its tokens once for
    each of them. The loss and the gradients are too small by the size of the group. There is no error. On two ranks
    of one group, the program prints:

        divided by 48 tokens instead of 24

    Sum over the data-parallel ranks: `dist.all_reduce(tokens, group=mesh["dp"].get_group())`.

    ## Since
    torch 2.3, where `parallelize_module` is public.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/TP_tutorial.html (the same input for the ranks of a group)
    - https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce (`group`)
    """

    code = "FSDP430"
    name = "total-of-repeated-data"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(BackwardRun):
            split = event.repeated
            if split is None or not event.collective or event.site in seen:
                continue
            before = trace.before(event, TensorParallel)
            parallel = next((one for one in before if split.dimension not in one.dims), None)
            if parallel is None or parallel.whole_mesh != split.mesh or not parallel.dims:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"the loss is divided by a total of all ranks, which counts the data of each position in "
                f"`{split.dimension}` once for each rank of a tensor parallel group",
                help=f'Sum over the data-parallel ranks: `group=mesh["{split.dimension}"].get_group()`.',
                because=[(parallel, "tensor parallelism")],
            )

"""FSDP150: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import ColumnsViewed, Trace


class HeadsOfAllRanks(Rule):
    """An attention divides the columns of one rank into the heads of all ranks.

    ## What it does
    Finds `x.view(batch, length, heads, -1)` of the output of a layer that a plan for `parallelize_module` splits
    with `ColwiseParallel()`, where `heads` is a setting of the program that nothing divides, and an attention gets the
    view: `scaled_dot_product_attention`, or a product of two such views. For another use, the numbers may be right.

    ## Why is this bad?
    `ColwiseParallel` gives each of N ranks the columns of 1/N of the heads. With the number of all heads, the size
    of a head, which torch computes for `-1`, is too small by N: each head mixes parts of what was one head, and the scale
    of the scores is wrong. There is no error, and the model differs from the one without tensor parallelism. On two ranks, the
    program prints:

        size of a head: 2 instead of 4

    Leave the number of heads to torch: `x.view(batch, length, -1, head_dim)`, or divide it by the size of the mesh, as
    the tutorial does.

    ## Since
    torch 2.3, where `ColwiseParallel` is public (seen with torch 2.13).

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/TP_tutorial.html ("change ... to local number of heads")
    """

    code = "FSDP150"
    name = "heads-of-all-ranks"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(ColumnsViewed):
            if event.parallel is None or event.parallel in seen:
                continue
            seen.add(event.parallel)
            yield self.finding(
                event,
                f"each rank has the columns of some heads alone, as `ColwiseParallel` splits them, and this divides "
                f"them into all `{event.heads}` heads",
                help="Leave the number of heads to torch: `x.view(batch, length, -1, head_dim)`.",
                because=[(trace.events[event.parallel], "split here")],
            )

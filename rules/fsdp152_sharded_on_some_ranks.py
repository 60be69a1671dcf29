"""FSDP152: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Sharded, Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.one_sided_sharding import one_sided_shards
from fsdplint.trace.queries.one_sided_steps import deciding_test


class ShardedOnSomeRanks(Rule):
    """Only some of the ranks shard a model.

    ## What it does
    Finds `fully_shard` under a test of the rank (`if rank == 0:`), without a mesh or with a mesh of all ranks
    (`init_device_mesh("cuda", (dist.get_world_size(),))`). It reports nothing if the other ranks shard a model of this
    class at another place. FSDP501 is about the constructor of FSDP1, which itself waits for all ranks.

    ## Why is this bad?
    Each forward of a sharded model gathers its parameters from all ranks of the mesh. The ranks that have not sharded the
    model do not take part, so the others wait for ever, or take the data of another collective for it. Run on
    two ranks, the program hangs in the first forward.

    Shard on all ranks, and keep only what needs one rank (printing, reading a file) under the test.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`mesh`: by default all ranks)
    """

    code = "FSDP152"
    name = "sharded-on-some-ranks"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        for shard in one_sided_shards(trace):
            yield self._finding(trace, shard)

    def _finding(self, trace: Trace, shard: Sharded) -> Finding:
        guard = deciding_test(shard)
        test = f" ({guard})" if guard is not None else ""
        return self.finding(
            shard,
            f"only some ranks shard `{class_name(trace, shard.module)}`{test}, and wait for the others in "
            "its first forward",
            help="Shard the model on all ranks.",
        ).with_test(guard)

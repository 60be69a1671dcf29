"""FSDP309: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.diagnostics.wording import names
from fsdplint.fixes.seeding import seed_after_sharding
from fsdplint.registry.rule import Rule
from fsdplint.trace import TensorParallel, Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.initial_weights import OwnWeights, own_weights

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class UnsynchronizedReplicas(Rule):
    """The replicas of a model under HSDP are initialised with different seeds.

    ## What it does
    Finds the same as FSDP308, but for ranks with copies of each other's shards: `fully_shard` on a mesh of
    two dimensions, and FSDP1's `HYBRID_SHARD` and `NO_SHARD` without `sync_module_states=True`.

    Also finds a model of which `parallelize_module` distributes some parts, and `fully_shard` shards all over other
    dimensions of the mesh, if each of all ranks initialises it with another seed. The ranks of a tensor parallel group
    hold copies of the parts that no plan names, such as an embedding. Distributed parts are the same on all of them,
    because a rank sends its weights to the others.

    ## Why is this bad?
    FSDP averages the gradients of the replicas and never compares their weights. Replicas that start with
    different weights keep different weights: each rank trains another model with gradients that belong to
    no model, and a checkpoint holds one of them. There is no error: on two ranks, the replicas still
    differed after 20 steps, with losses that looked normal. In a tensor parallel group, two ranks multiply their
    parts of a matrix by different outputs of their embeddings, which differed by 2.75.

    ## Fix safety
    Unsafe, as for FSDP308: the model is built from the same seed on all ranks, and each rank sets its own
    seed after sharding. There is none for tensor parallelism, where the ranks of a group need the same dropout.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - pytorch/pytorch#125431 and allenai/OLMo-core#319: replicas have to be broadcast by the user
    """

    code = "FSDP309"
    name = "unsynchronized-replicas"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    init_depends_on_sharding = True

    def check(self, trace: Trace) -> Iterable[Finding]:
        for found in own_weights(trace):
            if not found.replicated:
                continue
            name = class_name(trace, found.module)
            if found.parallel is not None:
                yield self._in_parallel_groups(trace, found, found.parallel)
                continue
            yield self.finding(
                found.seed,
                f"{found.seeding(name)}: the replicas start with different "
                f"weights and never become equal",
                help="Use the same seed on all ranks until the model is built, and one per rank only "
                "after that; or send the shards of one replica to the others before the first step "
                '(`dist.broadcast(p.to_local(), group=mesh.get_group("replicate"), group_src=0)`).',
                because=[(found.built, "built here"), (found.sharded, "sharded here")],
            )

    def _in_parallel_groups(
        self, trace: Trace, found: OwnWeights, parallel: TensorParallel
    ) -> Finding:
        over = names(parallel.dims, "dimension")
        return self.finding(
            found.seed,
            f"{found.seeding(class_name(trace, found.module))}: the ranks along "
            f"{over} have different weights in the parts that are not tensor parallel",
            help="Use a seed that is the same for these ranks until the model is sharded.",
            because=[
                (found.built, "a part that is not tensor parallel"),
                (parallel, "tensor parallelism of other parts"),
                (found.sharded, "sharded here"),
            ],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        if any(isinstance(event, TensorParallel) for event in finding.events):
            return None  # a seed of each rank after the sharding would give them different dropouts
        return seed_after_sharding(finding)

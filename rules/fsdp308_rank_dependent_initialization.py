"""FSDP308: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.fixes.seeding import seed_after_sharding
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.initial_weights import own_weights

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class RankDependentInitialization(Rule):
    """A model is initialised with a different seed on every rank, and then sharded.

    ## What it does
    Finds `torch.manual_seed(seed + rank)` before a model is built and then sharded by `fully_shard` or
    FSDP1, if nothing makes the weights of the ranks equal: no checkpoint is loaded, no weights are
    broadcast, and FSDP1 has no `sync_module_states=True`. Also finds a seed that only one rank sets.

    A model that is built on the meta device and initialised after sharding is fine, and so is a seed for
    each rank after the model is built. FSDP309 is about ranks with copies of each other's shards (HSDP).

    ## Why is this bad?
    Every rank keeps its part of its own random weights and drops the rest. DDP sends rank 0's weights to
    all ranks when it is built; sharding sends nothing. The trained model then matches no seed: on two
    ranks, 16 of 32 rows of a weight came from one seed and the rest from another, and an orthogonal
    weight was not orthogonal (off by 0.7). Runs with another number of ranks start with other weights.

    ## Fix safety
    Unsafe: the model is built from the same seed on all ranks, and each rank sets its own seed after
    sharding. The weights change, and so do random numbers that are drawn in between. There is a fix only
    if the seed is a sum that contains the rank.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - pytorch/torchtitan#670 ("Users need to handle it manually") and #1777
    - https://docs.pytorch.org/docs/stable/fsdp.html (`sync_module_states`)
    """

    code = "FSDP308"
    name = "rank-dependent-initialization"
    severity = Severity.WARNING
    fixable = Safety.UNSAFE
    init_depends_on_sharding = True

    def check(self, trace: Trace) -> Iterable[Finding]:
        for found in own_weights(trace):
            if found.replicated:
                continue
            name = class_name(trace, found.module)
            yield self.finding(
                found.seed,
                f"{found.seeding(name)}, and each keeps its own part: the sharded model mixes the weights of all "
                f"ranks",
                help="Use the same seed on all ranks until the model is built, and one per rank only "
                "after that; or load the weights of one rank into the sharded model with "
                "`set_model_state_dict` and `StateDictOptions(full_state_dict=True, "
                "broadcast_from_rank0=True)`.",
                because=[(found.built, "built here"), (found.sharded, "sharded here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        return seed_after_sharding(finding)

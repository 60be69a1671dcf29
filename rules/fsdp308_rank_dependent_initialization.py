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
    """A model is initialised with another seed on every rank, and then sharded.

    ## What it does
    Finds `torch.manual_seed(seed + rank)` ahead of building a model that is then sharded by `fully_shard`
    or FSDP1, where nothing brings the weights of the ranks together: no checkpoint is loaded, no
    weights are broadcast, FSDP1 has no `sync_module_states=True`. A model that is initialised after it
    was sharded (on the meta device first) is fine, and so is a seed per rank once the model is built.
    Where ranks hold copies of each other's shards (HSDP) it is FSDP309.

    ## Why is this bad?
    Every rank keeps its part of its own random weights and drops the rest. DDP sends rank 0's weights to
    all ranks when it is built; sharding sends nothing. The model that is trained is then that of no
    seed: on two ranks 16 of 32 rows of a weight were those of the seed, the rest of another one, and an
    orthogonal weight was not orthogonal (off by 0.7). Runs on other numbers of ranks start elsewhere,
    and whatever was initialised as a whole or relates one weight to another is broken.

    ## Fix safety
    Unsafe: the model is built from the same seed on all ranks, and the seed of each rank follows once it
    is sharded. Weights are others than before, and so are random numbers drawn between the two. There
    is a fix where the seed is a sum with the rank in it.

    ## Since
    torch 2.4, where `fully_shard` came; FSDP1 always.

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
                f"every rank initialises `{name}` with a seed of its own and keeps its part of it: the "
                f"sharded model is a mixture of the ranks' weights",
                help="Use the same seed on all ranks until the model is built, and one per rank only "
                "after that; or load the weights of one rank into the sharded model with "
                "`set_model_state_dict` and `StateDictOptions(full_state_dict=True, "
                "broadcast_from_rank0=True)`.",
                because=[(found.built, "built here"), (found.sharded, "sharded here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        return seed_after_sharding(finding)

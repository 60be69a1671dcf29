"""FSDP309: see the class."""

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


class UnsynchronizedReplicas(Rule):
    """The replicas of a model under HSDP are initialised with another seed on every rank.

    ## What it does
    Finds what FSDP308 finds, where ranks hold copies of each other's shards: `fully_shard` on a mesh of
    two dimensions, FSDP1's `HYBRID_SHARD` and `NO_SHARD` without `sync_module_states=True`.

    ## Why is this bad?
    The replicas' gradients are averaged, their weights are never compared. Replicas that start apart
    stay apart: the ranks train different models with gradients that belong to none of them, and a
    checkpoint holds one of these. Nothing is said; on two ranks the replicas still disagreed after 20
    steps with losses that look well.

    ## Fix safety
    Unsafe, as for FSDP308: the model is built from the same seed on all ranks, and the seed of each rank
    follows once it is sharded.

    ## Since
    torch 2.4, where `fully_shard` came; FSDP1 always.

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
            yield self.finding(
                found.seed,
                f"every rank initialises `{name}` with a seed of its own: its replicas start with "
                f"different weights and never agree",
                help="Use the same seed on all ranks until the model is built, and one per rank only "
                "after that; or send the shards of one replica to the others before the first step "
                '(`dist.broadcast(p.to_local(), group=mesh.get_group("replicate"), group_src=0)`).',
                because=[(found.built, "built here"), (found.sharded, "sharded here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        return seed_after_sharding(finding)

"""FSDP318: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import ModuleBuilt, StateLoaded, Trace, Wrapped
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.weights_of_one_rank import OneRankWeights, weights_of_one_rank


class WeightsOfOneRank(Rule):
    """One rank alone loads or sets the weights of a model, and sharding does not send them to the others.

    ## What it does
    Finds models that `fully_shard` or FSDP1 shards after `load_state_dict`, `from_pretrained`, a change of the
    parameters or their initialization under a test of the rank, if nothing gives the weights to the other ranks
    before the first backward: no `sync_module_states=True`, no broadcast, no state that all ranks load, and no
    change of these parameters on all ranks.

    ## Why is this bad?
    Sharding sends nothing. Each rank keeps its part of the weights that it has: the first rank those of the
    file, the others their initial ones. There is no error. On two ranks, 16 of 32 rows of a weight came from
    the file and the rest were random.

    With FSDP1, pass `sync_module_states=True`. With FSDP2, shard first, and send the state of rank 0:

        fully_shard(model)
        state = torch.load(path) if rank == 0 else {}
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(model, state, options=options)

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - https://docs.pytorch.org/docs/stable/fsdp.html (`sync_module_states`)
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`StateDictOptions`)
    """

    code = "FSDP318"
    name = "weights-of-one-rank"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        for found in weights_of_one_rank(trace):
            name = class_name(trace, found.module)
            yield self.finding(
                found.source,
                f"only one rank {_action(found)} `{name}`, and nothing sends them to the other ranks: "
                f"the sharded model mixes them with other weights",
                help=_advice(found),
                because=[(found.sharded, "sharded here")],
            )


def _action(found: OneRankWeights) -> str:
    loads = isinstance(found.source, StateLoaded | ModuleBuilt)
    return "loads the weights of" if loads else "sets weights of"


def _advice(found: OneRankWeights) -> str:
    if isinstance(found.sharded, Wrapped):
        return "Pass `sync_module_states=True` to the constructor of FSDP1."
    return (
        "Load the state into the sharded model on all ranks with `set_model_state_dict` and "
        "`StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)`."
    )

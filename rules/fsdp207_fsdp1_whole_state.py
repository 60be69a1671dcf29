"""FSDP207: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import MigrationRule, in_block, in_fsdp1
from fsdplint.trace import Layout, StateLoaded, StateTaken, Trace


class Fsdp1WholeState(MigrationRule):
    """A state dict of an FSDP1 model is taken or loaded as whole tensors.

    ## What it does
    Finds `model.state_dict()` and `model.load_state_dict(...)` of a model that `FullyShardedDataParallel` wraps,
    outside of `FSDP.state_dict_type` blocks.

    ## Why is this bad?
    The call is correct for FSDP1, whose default is whole tensors. On a module that `fully_shard` shards, it works with
    sharded tensors, without an error: a saved file holds a part of the weights.

    ## Fix safety
    Safe, as a part of the migration of the whole program: `get_model_state_dict` and `set_model_state_dict`
    with `full_state_dict=True` work with the same whole tensors.

    ## Since
    torch 2.2, the first with these getters and setters.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    """

    code = "FSDP207"
    name = "fsdp1-whole-state"
    severity = Severity.INFO
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.events:
            if isinstance(event, StateTaken):
                method, module = "state_dict", event.of
            elif isinstance(event, StateLoaded):
                method, module = "load_state_dict", event.into
            else:
                continue
            if event.api.rpartition(".")[2] != method or event.api.startswith("FSDP."):
                continue
            if event.layout is Layout.SHARDED:
                continue  # of a `state_dict_type` block
            if module in trace.modules and in_fsdp1(trace, module) and not in_block(trace, event):
                yield self.finding(
                    event,
                    f"`{method}()` works with whole tensors in FSDP1 and with sharded tensors in FSDP2",
                    help="Use `get_model_state_dict` and `set_model_state_dict` with "
                    "`StateDictOptions(full_state_dict=True)`.",
                )

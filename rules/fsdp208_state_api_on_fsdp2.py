"""FSDP208: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import OPTIMIZER_APIS, REKEY, STATE_APIS, MigrationRule
from fsdplint.trace import Fsdp1Used, Trace
from fsdplint.trace.queries.common import class_name, fsdp1_on_fsdp2, sharded_here


class StateApiOnFsdp2(MigrationRule):
    """FSDP1's state API is used on a model that `fully_shard` shards.

    ## What it does
    Finds `FSDP.state_dict_type`, `FSDP.set_state_dict_type`, `FSDP.optim_state_dict` and similar methods if
    `fully_shard` shards the model.

    ## Why is this bad?
    They look for FSDP1's wrappers in the model and find none:

    - A `with FSDP.state_dict_type(...)` block raises `KeyError: None` at its end. In the block, `model.state_dict()`
      returns DTensors for every type.
    - `FSDP.set_state_dict_type(...)` has no effect, and its FutureWarning does not say so. `model.state_dict()` stays
      sharded.
    - `FSDP.optim_state_dict` ends in `AttributeError: 'NoneType' object has no attribute
      'optim_state_dict_config'`, `FSDP.optim_state_dict_to_load` in `'NoneType' object has no attribute
      'state_dict_type'`, and the older ones (`full_optim_state_dict`, ...) in `IndexError: list index out of range`.

    ## Fix safety
    Safe: `get_model_state_dict`, `get_optimizer_state_dict` and their setters, with the kind of state that the
    program selects. All uses in files that belong together are rewritten, or none.

    ## Since
    torch 2.4, the first with FSDP2 and with getters and setters that support it.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    """

    code = "FSDP208"
    name = "fsdp1-state-api-on-fsdp2"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    fix_since = "2.4"

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Fsdp1Used):
            api = event.api.removeprefix("FSDP.")
            if api not in (*STATE_APIS, *OPTIMIZER_APIS) or api == REKEY or event.module is None:
                continue
            if not fsdp1_on_fsdp2(trace, event):
                continue
            name = class_name(trace, event.module)
            yield self.finding(
                event,
                f"`FSDP.{api}` does not support `{name}`, which `fully_shard` shards",
                help="Use the getters and setters of `torch.distributed.checkpoint.state_dict`.",
                because=sharded_here(trace, event.module, event),
            )

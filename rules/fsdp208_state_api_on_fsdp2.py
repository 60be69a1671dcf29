"""FSDP208: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import OPTIMIZER_APIS, STATE_APIS, MigrationRule
from fsdplint.trace import Fsdp1Used, Trace
from fsdplint.trace.queries.common import class_name, fsdp1_on_fsdp2, sharded_here


class StateApiOnFsdp2(MigrationRule):
    """The state of a model that `fully_shard` shards is asked for by FSDP1's API.

    ## What it does
    Finds `FSDP.state_dict_type`, `FSDP.set_state_dict_type`, `FSDP.optim_state_dict` and their like where
    `fully_shard` shards the model.

    ## Why is this bad?
    They look for FSDP1's wrappers in the model and find none:

    - a `with FSDP.state_dict_type(...)` block ends, when it is left, in `KeyError: None`; what `model.state_dict()`
      gave in it are DTensors, whatever the type says;
    - `FSDP.set_state_dict_type(...)` does nothing, with a FutureWarning about something else, and
      `model.state_dict()` stays sharded;
    - `FSDP.optim_state_dict` ends in `AttributeError: 'NoneType' object has no attribute
      'optim_state_dict_config'`, `FSDP.optim_state_dict_to_load` in `'NoneType' object has no attribute
      'state_dict_type'`, and the older ones (`full_optim_state_dict`, ...) in `IndexError: list index out of range`.

    ## Fix safety
    Safe: `get_model_state_dict`, `get_optimizer_state_dict` and their setters with the kind of state that the
    program asks FSDP1 for. All uses in files that belong together are rewritten, or none.

    ## Since
    torch 2.4, where `fully_shard` came; the getters and setters know it from then on.

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
            if api not in (*STATE_APIS, *OPTIMIZER_APIS) or event.module is None:
                continue
            if not fsdp1_on_fsdp2(trace, event):
                continue
            name = class_name(trace, event.module)
            yield self.finding(
                event,
                f"`FSDP.{api}` knows nothing of `{name}`, which `fully_shard` shards",
                help="Use the getters and setters of `torch.distributed.checkpoint.state_dict`.",
                because=sharded_here(trace, event.module, event),
            )

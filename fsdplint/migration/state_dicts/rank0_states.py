"""States that only rank 0 has, and that the program loads on every rank.

    state = model.state_dict()  # under FullStateDictConfig(rank0_only=True)
    state.update(load_file(path))
    model.load_state_dict(state, strict=False)

FSDP1 copies each rank's own dict into its shards. `set_model_state_dict` scatters the tensors in the
order of the dict, and the dicts of the ranks differ. So rank 0 has to send its dict, which is whole.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.torch_values import StateValue
from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.context import Migration
from fsdplint.syntax.arguments import arguments


def is_loaded(migration: Migration, load: cst.Call) -> bool:
    """Whether `model.load_state_dict(state)` certainly gets rank 0's state of the same model."""
    given = arguments(load, ("state_dict",))[0].get("state_dict")
    if given is None or not isinstance(load.func, cst.Attribute):
        return False
    states = migration.values(given.value)
    receivers = migration.values(load.func.value)
    models = {value.id for value in receivers if isinstance(value, ModuleValue)}
    return bool(states) and all(
        isinstance(one, StateValue)
        and one.on_one_rank
        and not (one.tensor or one.view)
        and isinstance(one.of, ModuleValue)
        and one.of.id in models
        for one in states
    )

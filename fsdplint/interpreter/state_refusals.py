"""Calls of the functions that set a state, which certainly raise an error."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.state_dicts import state_dict_option
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Dict,
    ModuleValue,
    OptimizerValue,
    Sequence,
    Unknown,
    Value,
)
from fsdplint.trace import StateCallRefused


def note_call(run: Run, call: Call, api: str, module: ModuleValue | None) -> None:
    """Note a call with options that contradict each other, or with an empty optimizer state."""
    if module is None or call.open:
        return
    full = state_dict_option(call, "full_state_dict")
    broadcast = state_dict_option(call, "broadcast_from_rank0")
    if broadcast is True and full is False:
        run.emit(StateCallRefused, call.node, of=module.id, api=api)
    elif broadcast is False and _sets_empty_state(run, call, api):
        on_one_rank = full is not False and state_dict_option(call, "cpu_offload") is not False
        if not on_one_rank:
            run.emit(StateCallRefused, call.node, of=module.id, api=api, empty=True)


def _sets_empty_state(run: Run, call: Call, api: str) -> bool:
    """Whether a function sets a state of an optimizer that is certainly empty on all ranks."""
    if api == "set_model_state_dict":
        return False
    state = call.arg(2, "optim_state_dict")  # only by its name for `set_state_dict`
    optimizers = run.settle(call.arg(1, "optimizers") or Unknown())
    known = [optimizers] if not isinstance(optimizers, Sequence) else list(optimizers.items)
    held = any(isinstance(run.settle(one), OptimizerValue) for one in known)
    return held and _is_empty(run.settle(state or Unknown()))


def _is_empty(value: Value) -> bool:
    return isinstance(value, Dict) and value.lacks_entries

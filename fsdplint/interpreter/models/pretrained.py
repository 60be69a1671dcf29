"""`model.save_pretrained(folder)` of Transformers, PEFT and the Hugging Face Hub."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.branch_conditions import rank_guard
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.checkpoint import emit_saved
from fsdplint.interpreter.models.registry import method
from fsdplint.interpreter.models.state_dicts import (
    fsdp2_layout,
    gathered_wrapper,
    module_state,
    take_state,
)
from fsdplint.interpreter.module_calls import call_library_method
from fsdplint.interpreter.module_tree import sharding_inside
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import RankTest, StateValue
from fsdplint.interpreter.values import Const, ModuleValue, Value, constant, is_none
from fsdplint.trace import Guard, Sharding

API = "safetensors.save_pretrained"  # it writes with safetensors
_BY_FRAMEWORK = {"fsdp1": Sharding.FSDP1, "fsdp2": Sharding.FSDP2}
PICKLED = "torch.save"  # with `safe_serialization=False`


@method("ModuleValue", "save_pretrained")
def save_pretrained(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """Without a state it takes that of the model itself."""
    receiver = gathered_wrapper(run, receiver) or receiver
    if not call.open:
        _note_saved(run, receiver, call)
    return call_library_method(run, receiver, name, call)


def _note_saved(run: Run, model: ModuleValue, call: Call) -> None:
    by_safetensors = constant(call.kwargs.get("safe_serialization")) is not False
    sharding = sharding_inside(run, model) or _BY_FRAMEWORK.get(model.framework)
    sharded = sharding in (Sharding.FSDP1, Sharding.FSDP2)
    given = run.settle(call.arg(2, "state_dict") or Const(None))
    if not is_none(given):
        if sharded or isinstance(given, StateValue):
            _save(run, call, API if by_safetensors else PICKLED, given)
    elif sharded and by_safetensors:
        _save(run, call, API, _own_state(run, call, model, sharding))


def _own_state(run: Run, call: Call, model: ModuleValue, sharding: Sharding | None) -> Value:
    if sharding is Sharding.FSDP1:
        return module_state(run, model, "state_dict", call)
    layout = fsdp2_layout(run, model)
    return take_state(run, call, model, layout, "save_pretrained", collective=False)


def _save(run: Run, call: Call, api: str, state: Value) -> None:
    """Record that files are written, if it is known on which ranks.

    A rank that is not the main process and has an empty state writes no file, and removes none.
    """
    main = run.settle(call.arg(1, "is_main_process") or Const(True))
    guards: list[tuple[Guard, str]] = []
    if isinstance(main, RankTest):
        guards = [(rank_guard(run, _place(call, "is_main_process"), main, True), "")]
    elif constant(main) is not True:
        return
    path = call.arg(0, "save_directory")
    with run.under_guards(guards):
        emit_saved(run, call, api, run.settle(state), path, collective=False, per_rank=False)


def _place(call: Call, name: str) -> cst.BaseExpression:
    """The expression of an argument that is given by its name; else the whole call."""
    assert isinstance(call.node, cst.BaseExpression)
    args = call.node.args if isinstance(call.node, cst.Call) else ()
    named = (arg.value for arg in args if arg.keyword is not None and arg.keyword.value == name)
    return next(named, call.node)

"""`model.save_pretrained(folder)` of Transformers, PEFT and the Hugging Face Hub."""

from __future__ import annotations

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
from fsdplint.interpreter.values import ModuleValue, Value, constant, is_none
from fsdplint.trace import Sharding

API = "safetensors.save_pretrained"  # it writes with safetensors


@method("ModuleValue", "save_pretrained")
def save_pretrained(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """Without a state it takes that of the model itself."""
    by_safetensors = constant(call.kwargs.get("safe_serialization")) is not False
    receiver = gathered_wrapper(run, receiver) or receiver
    sharding = sharding_inside(run, receiver)
    if by_safetensors and not call.open and sharding in (Sharding.FSDP1, Sharding.FSDP2):
        given = call.arg(2, "state_dict")
        if given is None or is_none(given):
            given = (
                module_state(run, receiver, "state_dict", call)
                if sharding is Sharding.FSDP1
                else take_state(
                    run,
                    call,
                    receiver,
                    fsdp2_layout(run, receiver),
                    "save_pretrained",
                    collective=False,
                )
            )
        path = call.arg(0, "save_directory")
        emit_saved(run, call, API, run.settle(given), path, collective=False, per_rank=False)
    return call_library_method(run, receiver, name, call)

"""Methods that a call names by their class: `nn.Module.train(model)`."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    GeneratorValue,
    SamplerValue,
    ScalerValue,
    SchedulerValue,
)
from fsdplint.interpreter.values import Method, ModuleValue, OptimizerValue

_OBJECTS = (
    *(GeneratorValue, ModuleValue, OptimizerValue),
    *(SamplerValue, ScalerValue, SchedulerValue),
)


def named_by_class(run: Run, name: str, call: Call) -> Method | None:
    """The method of the first argument that a function of torch is; None if it is another one."""
    owner, _, method = name.rpartition(".")
    if not call.args or not owner.startswith("torch.") or method == "__init__":
        return None
    receiver = run.settle(call.args[0])
    is_class = owner.rpartition(".")[2][:1].isupper()
    return Method(receiver, method) if is_class and isinstance(receiver, _OBJECTS) else None

"""Registration of hooks on modules, parameters and optimizers."""

from __future__ import annotations

from fsdplint.interpreter.escape import escape
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.hooks import Moment, register
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.parameter_marks import mark_parameters
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    HookHandle,
    ParametersOf,
    TensorValue,
    is_new_parameter,
)
from fsdplint.interpreter.values import (
    Dict,
    LibraryObject,
    ModuleValue,
    OptimizerValue,
    Sequence,
    Unknown,
    Value,
    constant,
)


@method("ModuleValue", "register_forward_pre_hook")
def before_forward(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    values: list[Value] = [receiver, _unknown_arguments()]
    if constant(call.kwargs.get("with_kwargs")) is True:
        values.append(Dict(open=True))
    register(run, Moment.BEFORE_FORWARD, receiver, call.arg(0, "hook"), values)
    return Unknown()


@method("ModuleValue", "register_forward_hook")
def after_forward(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    values: list[Value] = [receiver, _unknown_arguments()]
    if constant(call.kwargs.get("with_kwargs")) is True:
        values.append(Dict(open=True))
    values.append(TensorValue("output", (receiver,)))
    register(run, Moment.AFTER_FORWARD, receiver, call.arg(0, "hook"), values)
    return Unknown()


@method("ModuleValue", "register_full_backward_hook", "register_full_backward_pre_hook",
        "register_backward_hook")  # fmt: skip
def in_backward(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    values: list[Value] = [receiver, _unknown_arguments()]
    if not name.endswith("pre_hook"):
        values.append(_unknown_arguments())
    register(run, Moment.BACKWARD, None, call.arg(0, "hook"), values)
    return Unknown()


@method("ParametersOf", "register_hook", "register_post_accumulate_grad_hook")
def of_parameter(run: Run, receiver: ParametersOf, name: str, call: Call) -> Value:
    mark = mark_parameters(run, receiver, name, hook=True)
    _of_tensor(run, receiver, name, call)
    return HookHandle(mark=mark)


@method("LibraryObject", "register_hook", "register_post_accumulate_grad_hook")
def of_new_parameter(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    if is_new_parameter(receiver):
        _of_tensor(run, receiver, name, call)
    return Unknown()


def _of_tensor(run: Run, tensor: Value, name: str, call: Call) -> None:
    """Let the backward call a hook of a tensor, which gets the gradient or the tensor."""
    gets_gradient = name == "register_hook"
    values = [Unknown(varying=True) if gets_gradient else tensor]
    register(run, Moment.BACKWARD, None, call.arg(0, "hook"), values)


@method("OptimizerValue", "register_step_pre_hook", "register_step_post_hook")
def of_optimizer(run: Run, receiver: OptimizerValue, name: str, call: Call) -> Value:
    moment = Moment.BEFORE_STEP if "pre" in name else Moment.AFTER_STEP
    values: list[Value] = [receiver, _unknown_arguments(), Dict(open=True)]
    register(run, moment, receiver, call.arg(0, "hook"), values)
    return Unknown()


@function("torch.optim.optimizer.register_optimizer_step_pre_hook",
          "torch.optim.optimizer.register_optimizer_step_post_hook")  # fmt: skip
def of_each_optimizer(run: Run, name: str, call: Call) -> Value:
    """A hook of all optimizers, which is not executed."""
    run.hooks_drop_gradients = True
    escape(run, call)
    return Unknown()


def _unknown_arguments() -> Value:
    return Sequence([], "tuple", open=True)

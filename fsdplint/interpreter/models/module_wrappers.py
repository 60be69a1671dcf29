"""Functions that wrap or change a whole module: compile, DDP, checkpointing, averaging."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.copies import duplicate_module
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.modules import (
    as_module,
    new_module,
)
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import (
    Const,
    ModuleValue,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace import (
    Checkpointed,
    Compiled,
    ModuleCopied,
    Replicated,
)


@function("torch.compile")
def compile_module(run: Run, name: str, call: Call) -> Value:
    module = as_module(run, call.arg(0, "model"))
    if module is None:
        return call.args[0] if call.args else Unknown()
    wrapper = wrap(run, module, "OptimizedModule", "compile", call)
    run.emit(Compiled, call.node, module=module.id, result=wrapper.id)
    return wrapper


def wrap(run: Run, inner: ModuleValue, class_name: str, kind: str, call: Call) -> ModuleValue:
    """A module that wraps another one."""
    wrapper = new_module(run, call.node, class_name, own_parameters=False)
    wrapper.inner, wrapper.wrapper = inner, kind
    info = run.trace.modules[wrapper.id]
    info.inner, info.wrapper = inner.id, kind
    return wrapper


@function("torch.nn.parallel.DistributedDataParallel", "torch.nn.DataParallel")
def data_parallel(run: Run, name: str, call: Call) -> Value:
    module = as_module(run, call.arg(0, "module"))
    if module is None:
        return Unknown()
    if name.endswith("DistributedDataParallel"):
        options = {key: constant(value) for key, value in call.kwargs.items() if key != "module"}
        run.emit(
            Replicated,
            call.node,
            inner=module.id,
            options=options | ({"**": "?"} if call.open else {}),
            collective=True,
        )
    return wrap(run, module, name.rpartition(".")[2], "ddp", call)


_PARAMETRIZATIONS = "torch.nn.utils.parametrizations"


@function(f"{_PARAMETRIZATIONS}.weight_norm", f"{_PARAMETRIZATIONS}.spectral_norm",
          f"{_PARAMETRIZATIONS}.orthogonal", "torch.nn.utils.weight_norm",
          "torch.nn.utils.spectral_norm")  # fmt: skip
def parametrize(run: Run, name: str, call: Call) -> Value:
    """The module itself, whose weight is computed from other parameters of it."""
    return as_module(run, call.arg(0, "module")) or Unknown()


CHECKPOINTING = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"


@function(f"{CHECKPOINTING}.checkpoint_wrapper", f"{CHECKPOINTING}.offload_wrapper")
def checkpoint_wrapper(run: Run, name: str, call: Call) -> Value:
    """The wrapper is treated as the module itself, so that submodules keep their names."""
    module = as_module(run, call.arg(0, "module"))
    if module is None:
        return Unknown()
    run.emit(Checkpointed, call.node, module=module.id)
    return module


@function(f"{CHECKPOINTING}.apply_activation_checkpointing")
def apply_checkpointing(run: Run, name: str, call: Call) -> Value:
    module = as_module(run, call.arg(0, "model"))
    if module is not None:
        run.emit(Checkpointed, call.node, module=module.id)
    return Const(None)


@function(
    "torch.distributed._composable.replicate.replicate", "torch.distributed._composable.replicate",
    "torch.distributed._composable.checkpoint", "torchao.float8.convert_to_float8_training",
)  # fmt: skip
def convert_in_place(run: Run, name: str, call: Call) -> Value:
    """Functions that change the layers of a module and return the module, in the same structure."""
    module = as_module(run, call.arg(0, "module"))
    return module if module is not None else unknown_result(call)


@function("torch.optim.swa_utils.AveragedModel")
def averaged_model(run: Run, name: str, call: Call) -> Value:
    module = as_module(run, call.arg(0, "model"))
    if module is None:
        return Unknown()
    copy = duplicate_module(run, module, call)
    run.emit(ModuleCopied, call.node, module=module.id, copy=copy.id, api="AveragedModel")
    return copy


@method("ModuleValue", "compile")
def compile_in_place(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    run.emit(Compiled, call.node, module=receiver.id, result=receiver.id)
    return Const(None)

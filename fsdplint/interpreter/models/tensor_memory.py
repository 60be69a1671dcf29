"""Functions that read the memory of a tensor, which fails or reads nothing for a DTensor."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.checkpoint import parameter_layout
from fsdplint.interpreter.models.registry import FUNCTIONS, function, method
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf, ShardTensor, StateValue
from fsdplint.interpreter.values import Method, ModuleValue, Unknown, Value
from fsdplint.trace import Layout, RawRead

READERS = ("numpy", "tolist", "data_ptr", "untyped_storage", "storage")


@method("StateValue", *READERS)
@method("ParametersOf", *READERS)
@method("ShardTensor", *READERS)
def read_method(run: Run, receiver: Value, name: str, call: Call) -> Value:
    emit_raw_read(run, receiver, name, call)
    return Unknown(varying=True)


@function("numpy.asarray", "numpy.array", "numpy.ascontiguousarray", "torch.utils.dlpack.to_dlpack")
def read_function(run: Run, name: str, call: Call) -> Value:
    value = run.settle(call.args[0]) if call.args else Unknown()
    if isinstance(value, StateValue) and not value.tensor:
        value = Unknown()  # a dict becomes an array of one object
    emit_raw_read(run, value, name, call)
    return FUNCTIONS["numpy."](run, name, call)


@function("numpy.save")
def save_array(run: Run, name: str, call: Call) -> Value:
    if len(call.args) > 1:
        emit_raw_read(run, run.settle(call.args[1]), name, call)
    return FUNCTIONS["numpy."](run, name, call)


def emit_raw_read(run: Run, value: Value, api: str, call: Call) -> None:
    layout, of = Layout.UNKNOWN, None
    if isinstance(value, Method):
        value = run.settle(value.receiver)  # `parameter.data`
    if isinstance(value, ParametersOf | ShardTensor):
        if isinstance(value, ParametersOf) and not value.element:
            return
        if isinstance(value, ShardTensor) and value.reduction:
            return
        layout = parameter_layout(run, value)
        of = value.modules[0].id if value.modules else None
    elif isinstance(value, StateValue):
        if isinstance(value.of, ModuleValue):
            layout, of = value.layout, value.of.id
    else:
        return
    run.emit(RawRead, call.node, api=api, layout=layout, of=of)

"""The floating-point dtypes of tensors, and layers that get a tensor of another dtype.

What is noted here is certain if the tensor is one of floating-point numbers. An operation that is
not known here makes a tensor of unknown dtype.
"""

from __future__ import annotations

import re

from fsdplint.interpreter.error_handling import catches_errors
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.neutral_contexts import is_neutral
from fsdplint.interpreter.precisions import CASTS, dtype_name
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import TensorValue
from fsdplint.interpreter.unit_precisions import dtype_of_layer
from fsdplint.interpreter.values import (
    Const,
    Context,
    LibraryObject,
    ModuleValue,
    Sequence,
    Unknown,
    Value,
)
from fsdplint.trace import Refused

# Operations that give a dtype, whatever their operand has.
CASTING = frozenset({*CASTS, "to", "type", "type_as"})
_NEW = frozenset("empty ones rand randn zeros".split())
# Their result has the dtype of their first operand.
_KEEPS = frozenset(
    "abs clone contiguous cos cpu cuda detach dropout exp expand flatten gelu leaky_relu log mish "
    "neg permute relu repeat reshape rsqrt select sigmoid silu sin softmax softplus sqrt square "
    "squeeze tanh transpose unflatten unsqueeze view".split()
)
# Their result has the dtype of all their operands, if they have the same.
_JOINS = frozenset("add cat concat div matmul mul scaled_dot_product_attention stack sub".split())
# Layers that need an input of the dtype of their weight, and those that keep the dtype of theirs.
_STRICT = re.compile(r"torch\.nn\.(Linear|Conv(Transpose)?\dd)")
_NORMS = re.compile(r"torch\.nn\.(LayerNorm|GroupNorm|RMSNorm|(Sync)?BatchNorm(\dd)?)")
_PLAIN = re.compile(
    r"torch\.nn\.(Dropout\d?d?|Flatten|GELU|Identity|LeakyReLU|Mish|ReLU6?|SELU|SiLU|Sigmoid"
    r"|Softmax|Softplus|Tanh|Unflatten|(Adaptive)?(Avg|Max)Pool\dd)"
)


def note_new(run: Run, name: str, call: Call, result: Value) -> None:
    """`torch.randn(4, 4)`, `torch.zeros(4, 4, dtype=torch.bfloat16)`"""
    if name.rpartition(".")[2] not in _NEW or call.open or not call.args:
        return
    first = run.settle(call.args[0])
    if isinstance(first, Sequence) and not first.items:
        return  # a number, which changes the dtype of no other operand
    dtype = call.kwargs.get("dtype")
    if dtype is not None:
        set_dtype(run, result, dtype_name(run.settle(dtype)))
    elif not run.other_default_dtype and all(map(is_neutral, run.contexts)):
        set_dtype(run, result, "float32")


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """Note the dtype of the result of an operation."""
    if any(one is result for one in operands) and name not in CASTING:
        return
    given = [run.dtypes.get(one, "") for one in operands if not _is_number(one)]
    if name in CASTS:
        set_dtype(run, result, CASTS[name])
    elif name in CASTING:
        set_dtype(run, result, _dtype_of_cast(run, operands))
    elif name in _KEEPS:
        set_dtype(run, result, given[0] if given else "")
    elif name in _JOINS:
        parts = [run.settle(part) for one in operands for part in _parts(one)]
        found = {run.dtypes.get(one, "") for one in parts if not _is_number(one)}
        set_dtype(run, result, found.pop() if len(found) == 1 else "")
    else:
        run.dtypes.pop(result, None)


def _dtype_of_cast(run: Run, operands: list[Value]) -> str:
    """The dtype that `x.to(...)` or `x.type_as(...)` gives."""
    for one in operands[1:]:
        if (name := dtype_name(run.settle(one))) or (name := run.dtypes.get(one, "")):
            return name
    devices = all(isinstance(one, Const | Context | LibraryObject) for one in operands[1:])
    return run.dtypes.get(operands[0], "") if devices else ""


def _parts(value: Value) -> list[Value]:
    return value.items if isinstance(value, Sequence) and not value.open else [value]


def _is_number(value: Value) -> bool:
    return isinstance(value, Const)


def set_dtype(run: Run, value: Value, dtype: str) -> None:
    """Note the dtype of a tensor; "" if it is not certain."""
    if dtype and isinstance(value, Unknown | TensorValue):
        run.dtypes[value] = dtype
    else:
        run.dtypes.pop(value, None)


def note_layer(run: Run, layer: ModuleValue, call: Call, result: TensorValue) -> None:
    """Note the dtype that a layer of torch gives, or that it raises an error because of its input.

    Under autocast, operations choose their own dtypes.
    """
    name = layer.library_class or ""
    if call.open or not call.args or _may_be_autocast(run):
        return
    got = run.dtypes.get(run.settle(call.args[0]), "")
    if _PLAIN.fullmatch(name):
        set_dtype(run, result, got)
        return
    computes = dtype_of_layer(run, layer)
    if not computes:
        return
    if _STRICT.fullmatch(name):
        if got and got != computes:
            _refuse(run, layer, call, {"weight": computes, "input": got})
        set_dtype(run, result, computes)
    elif _NORMS.fullmatch(name):
        # In the other direction, layers on the CPU raise no error.
        if got == "float32" and got != computes and "RMSNorm" not in name:
            _refuse(run, layer, call, {"weight": computes, "input": got})
        set_dtype(run, result, got)
    elif name == "torch.nn.Embedding":
        set_dtype(run, result, computes)


def _refuse(run: Run, layer: ModuleValue, call: Call, types: dict[str, str]) -> None:
    if any(run.trace.of(Refused)) or catches_errors(run, call.node):
        return
    parameters = tuple((name, f"torch.{dtype}") for name, dtype in types.items())
    run.emit(Refused, call.node, module=layer.id, reason="input", parameters=parameters)


def _may_be_autocast(run: Run) -> bool:
    """Whether the program may choose other dtypes for operations, by a context or a decorator."""
    sources = run.project.sources
    if run.autocast[0] != len(sources):
        run.autocast = len(sources), any("autocast" in one.text for one in sources.values())
    known = all(isinstance(one, Context) or is_neutral(one) for one in run.contexts)
    return run.autocast[1] or not known

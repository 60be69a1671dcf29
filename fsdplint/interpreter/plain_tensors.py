"""Tensors that are certainly no DTensors, and have more than one element.

A DTensor takes a plain tensor of one element as a number. An operation of a DTensor and any other
plain tensor raises an error.
"""

from __future__ import annotations

import math

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.scalars import is_number
from fsdplint.interpreter.sharded_parameters import must_be_sharded
from fsdplint.interpreter.torch_values import ParametersOf, TensorValue
from fsdplint.interpreter.values import Const, Sequence, Symbol, Unknown, Value, constant
from fsdplint.trace import TensorsMixed

_NEW = frozenset("empty ones rand randn zeros".split())
# Operations whose result has at least as many elements as each operand, and is plain as they are.
_KEEPS = frozenset(
    "abs add bfloat16 clamp clone contiguous cos cpu cuda detach div double exp float half log mul "
    "neg other pow sin sqrt square sub tanh to".split()
)
_IN_PLACE = frozenset("add_ copy_ div_ lerp_ mul_ sub_".split())


def note_new(run: Run, name: str, call: Call, result: Value) -> None:
    """`torch.randn(4, 4)`, `torch.zeros(p.shape)`"""
    if name.rpartition(".")[2] in _NEW and not call.open and "out" not in call.kwargs:
        if isinstance(result, Unknown | TensorValue) and _has_elements(run, call):
            run.plain_tensors.add(result)


def is_new_tensor(run: Run, value: Value) -> bool:
    """Whether a value is certainly a plain tensor that the program has made of numbers."""
    if value in run.plain_tensors:
        return True
    library = value.library if isinstance(value, Unknown) else ""
    return library in {f"torch.{name}" for name in (*_NEW, "full", "tensor")}


def _has_elements(run: Run, call: Call) -> bool:
    """Whether a new tensor certainly has more than one element."""
    if not call.args or not isinstance(call.node, cst.Call):
        return False
    first = run.settle(call.args[0])
    sizes = first.items if isinstance(first, Sequence) and not first.open else call.args
    if len(sizes) > 1:
        return True
    if isinstance(first, Sequence) and not first.open:
        return any(math.prod([constant(run.settle(one)) or 0]) > 1 for one in sizes)
    size = constant(first)
    return size > 1 if isinstance(size, int) else _is_shape(call.node.args[0])


def _is_shape(arg: cst.Arg) -> bool:
    """`p.shape` and `p.size()`"""
    value = arg.value
    if isinstance(value, cst.Call) and not value.args and isinstance(value.func, cst.Attribute):
        return value.func.attr.value == "size"
    return isinstance(value, cst.Attribute) and value.attr.value == "shape"


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """Note whether the result of an operation is a plain tensor."""
    in_place = name.endswith("_") and bool(operands) and operands[0] in run.plain_tensors
    if name not in _KEEPS and not in_place:
        return
    plain = [one for one in operands if one in run.plain_tensors]
    others = [one for one in operands if one not in run.plain_tensors]
    # An unknown operand is plain, too, or the operation itself raises the error.
    kept = all(isinstance(one, Const | Symbol | Unknown) or is_number(one) for one in others)
    if plain and (in_place or kept):
        run.plain_tensors.add(result)


def note_written(
    run: Run, node: cst.CSTNode, name: str, target: ParametersOf, operands: list[Value]
) -> None:
    """Record that a sharded parameter is changed in place by a plain tensor."""
    plain = any(run.settle(one) in run.plain_tensors for one in operands[:1])
    if plain and name in _IN_PLACE and must_be_sharded(run, target):
        modules = tuple(module.id for module in target.modules)
        run.emit(TensorsMixed, node, api=name, plain_modules=(), sharded_modules=modules)

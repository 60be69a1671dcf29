"""Operations on plain tensors and sharded parameters together."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter import losses, precisions
from fsdplint.interpreter.copies_of_shards import note_copies_written
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.long_run import long_run
from fsdplint.interpreter.models import tensors
from fsdplint.interpreter.models.checkpoint import parameter_layout
from fsdplint.interpreter.models.randomness import RANDOM, is_parameter_itself, note_weights_set
from fsdplint.interpreter.models.registry import FUNCTIONS, function
from fsdplint.interpreter.module_tree import sharding_of_parameters
from fsdplint.interpreter.optimizers import take_parameters
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.sharded_parameters import are_gathered, must_be_sharded, rests_sharded
from fsdplint.interpreter.torch_values import ParametersOf, TensorValue, derived
from fsdplint.interpreter.unit_parameters import rests_flat
from fsdplint.interpreter.unsaved_averages import note_holder
from fsdplint.interpreter.values import (
    Const,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
    gathers,
)
from fsdplint.trace import (
    AliasAveraged,
    AverageUpdated,
    CopiedToItself,
    Layout,
    ShardComputed,
    Sharding,
    TensorsMixed,
)

METHODS = {"lerp", "lerp_", "add", "add_", "sub", "sub_", "mul", "mul_", "copy_"}
# Methods that copy a tensor or return a view of it.
_COPIES = {"clone", "detach", "cpu", "cuda", "float", "double", "to", "contiguous"}
_WHOLE_COPIES = {"clone", "cpu"}  # where `summon_full_params` has gathered the parameter


@function("torch.lerp", *(f"torch._foreach_{name}_" for name in
          ("lerp", "add", "sub", "copy", "zero", "clamp_min", "clamp_max")))  # fmt: skip
def foreach_function(run: Run, name: str, call: Call) -> Value:
    note_mixed(run, name, call.values, call.node)
    if name != "torch.lerp":
        note_foreach_written(run, call)
    if name in ("torch._foreach_lerp_", "torch._foreach_add_"):
        note_alias(
            run,
            name,
            call.arg(0, "self") or Unknown(),
            call.arg(1, "other") or Unknown(),
            call.node,
        )
    return FUNCTIONS["torch."](run, name, call)


def note_foreach_written(run: Run, call: Call) -> None:
    """Record that a function for several tensors sets the parameters in its first argument."""
    held = run.settle(call.arg(0, "self") or Unknown())
    if isinstance(held, ParametersOf):
        one = replace(held, element=True, each=held.every)
        note_written(run, call.node, [one], call.values)
    elif isinstance(held, Sequence):
        note_written(run, call.node, held.items, call.values)


def note_written(run: Run, node: cst.CSTNode, values: list[Value], operands: list[Value]) -> None:
    """Record that an operation in place sets the parameters among the values."""
    others = [one for one in map(run.settle, operands) if one not in values]
    found = [one for one in others if isinstance(one, ParametersOf)]
    sharded = any(one.element and must_be_sharded(run, one) for one in found)
    note_weights_set(run, node, values, with_sharded=sharded)
    note_copies_written(run, node, values, operands)


PRODUCTS = ("matmul", "mm", "bmm", "einsum", "addmm", "baddbmm")
_LAYERS = ("linear", "bilinear", "embedding", "linear_cross_entropy")
# Fused losses of other packages, which multiply the output of a model by the weight of its head.
_FUSED_LOSSES = (
    "cut_cross_entropy.linear_cross_entropy",
    "liger_kernel.transformers.functional.liger_fused_linear_cross_entropy",
)
_FUSED_LOSS_CLASSES = {
    f"{home}.LigerFusedLinearCrossEntropyLoss": _FUSED_LOSSES[1]
    for home in (
        "liger_kernel.transformers",
        "liger_kernel.transformers.fused_linear_cross_entropy",
    )
} | {f"{home}.LinearCrossEntropy": _FUSED_LOSSES[0] for home in ("cut_cross_entropy",)}


@function(
    *(f"torch.{name}" for name in PRODUCTS),
    *(f"torch.nn.functional.{name}" for name in _LAYERS),
)
def product(run: Run, name: str, call: Call) -> Value:
    note_computation(run, name, call.values, call.node)
    return FUNCTIONS["torch."](run, name, call)


@function(*_FUSED_LOSSES)
def fused_loss(run: Run, name: str, call: Call) -> Value:
    note_computation(run, name, call.values, call.node)
    return TensorValue("output")


@function(*_FUSED_LOSS_CLASSES)
def fused_loss_object(run: Run, name: str, call: Call) -> Value:
    """An object that is called with the tensors."""
    return Partial(Symbol(_FUSED_LOSS_CLASSES[name]))


def note_mixed(run: Run, api: str, values: list[Value], node: cst.CSTNode) -> None:
    """Record an operation that gets plain and sharded tensors."""
    found: dict[Layout, list[str]] = {}
    for value in values:
        one = _parameters(run, value)
        if one is not None:
            modules = [module.id for module in one.modules]
            layout = parameter_layout(run, one)
            if layout is Layout.UNKNOWN and rests_flat(run, one):
                layout = Layout.SHARDED
            found.setdefault(layout, []).extend(modules)
    if set(found) == {Layout.PLAIN, Layout.SHARDED}:
        plain, sharded = tuple(found[Layout.PLAIN]), tuple(found[Layout.SHARDED])
        run.emit(TensorsMixed, node, api=api, plain_modules=plain, sharded_modules=sharded)


# Computations -------------------------------------------------------------------------------------


def note_computation(run: Run, api: str, values: list[Value], node: cst.CSTNode) -> None:
    """Record a function of torch that gets a sharded parameter and the output of a module."""
    operands = [run.settle(value) for value in values]
    if not any(type(value) is TensorValue and value.source == "output" for value in operands):
        return
    for value in operands:
        if isinstance(value, ParametersOf) and value.element and _is_not_gathered(run, value):
            modules = tuple(module.id for module in value.modules)
            run.emit(ShardComputed, node, api=api, modules=modules)
            return


def _is_not_gathered(run: Run, parameter: ParametersOf) -> bool:
    return rests_sharded(run, parameter) or rests_flat(run, parameter)


def _parameters(run: Run, value: Value) -> ParametersOf | None:
    value = run.settle(value)
    if isinstance(value, Sequence) and value.items:
        found = [_parameters(run, item) for item in value.items]
        return found[0] if len(found) == 1 else None
    return value if isinstance(value, ParametersOf) else None


# Parameters and their aliases ------------------------------------------------------------------


def note_copy(run: Run, parameter: Value, kept: Value, node: cst.CSTNode) -> None:
    """Record that a parameter is set to itself, as the program kept it before."""
    if _chooses_other(node):
        return
    one, other = _single(run, kept), _single(run, parameter)
    if one is not None and other is not None and _are_aliases(run, one, other):
        modules = tuple(module.id for module in one.modules)
        run.emit(CopiedToItself, node, modules=modules, taken_at=one.taken_at or 0)


def _chooses_other(node: cst.CSTNode) -> bool:
    """Whether code computes which parameter an operation copies: `kept[name[4:]]`."""
    argument = node.args[0].value if isinstance(node, cst.Call) and node.args else None
    while isinstance(argument, cst.Attribute):
        argument = argument.value
    if isinstance(argument, cst.Subscript):
        index = argument.slice[0].slice
        return not (isinstance(index, cst.Index) and isinstance(index.value, cst.Name))
    return not isinstance(argument, cst.Name)


def note_alias(run: Run, api: str, average: Value, parameter: Value, node: cst.CSTNode) -> None:
    """Record an update of an average that is the parameter itself, which was read before."""
    one, other = _single(run, average), _single(run, parameter)
    if one is not None and other is not None and _are_aliases(run, one, other):
        run.emit(AliasAveraged, node, api=api, modules=tuple(m.id for m in one.modules))


def _are_aliases(run: Run, one: ParametersOf, other: ParametersOf) -> bool:
    """Whether two are the same parameters of `fully_shard`, of which the first was read before."""
    if (one.name, one.modules) != (other.name, other.modules):
        return False
    if not (is_parameter_itself(one) and is_parameter_itself(other)):
        return False
    if one.taken_at is None or other.taken_at is None or one.taken_at >= other.taken_at:
        return False
    return sharding_of_parameters(run, one) is Sharding.FSDP2


def _single(run: Run, value: Value) -> ParametersOf | None:
    """One parameter, or the one that stands for all in a list."""
    value = run.settle(value)
    value = run.local_parts.get(value, value)
    if isinstance(value, Sequence):
        return _single(run, value.items[0]) if len(value.items) == 1 else None
    if not isinstance(value, ParametersOf):
        return None
    return take_parameters(run, value, element=True)


def note_average(run: Run, api: str, average: Value, call: Call) -> None:
    """`average.lerp_(parameter, weight)` and `average.add_(parameter, alpha=weight)`"""
    updated, parameter = _single(run, average), _single(run, call.values[0])
    given = call.arg(1, "weight") if api == "lerp_" else call.kwargs.get("alpha")
    given = run.settle(given) if given is not None else None
    if updated is None or parameter is None:
        return
    note_holder(run, updated, parameter)
    weight = long_run(run, given)
    if weight is None:
        return
    dtype = precisions.dtype_of_parameters(run, updated)
    if dtype and 0 < weight < 1:
        modules = tuple(module.id for module in parameter.modules)
        run.emit(
            AverageUpdated,
            call.node,
            modules=modules,
            dtype=dtype,
            weight=round(weight, 12),
            fixed=isinstance(given, Const),
        )


def local_part(run: Run, receiver: TensorValue, name: str, call: Call) -> Value:
    """The result of a method of the local tensor of a parameter, which has the same memory."""
    if name == "detach":
        return receiver
    if name.endswith("_") and name not in RANDOM:
        note_weights_set(run, call.node, [run.local_parts[receiver]], of_shard=True)
        if name == "copy_" and call.values:
            note_copy(run, receiver, call.values[0], call.node)
    return losses.through_method(receiver, name, call)


def copy_parameter(run: Run, receiver: ParametersOf, name: str, call: Call) -> ParametersOf:
    """The result of a method of a parameter."""
    if name.endswith("_"):
        return receiver
    result = _copy(run, receiver, name, call)
    dtype = precisions.dtype_of_copy(run, receiver, name, call)
    return replace(result, dtype=dtype) if dtype else result


def _copy(run: Run, receiver: ParametersOf, name: str, call: Call) -> ParametersOf:
    partial = run.ranks().partial
    if name in tensors.MOVING:
        receiver = replace(receiver, moved=True)
    if name in _COPIES:
        gathered = are_gathered(run, receiver)
        if gathered is None:
            return replace(derived(receiver, partial=partial), complete=False)
        if gathered or sharding_of_parameters(run, receiver) is None:
            return replace(derived(receiver, partial=partial), unsharded_copy=True)
        sharded = must_be_sharded(run, receiver)
        receiver = replace(receiver, sharded_copy=sharded)
    else:
        receiver = replace(receiver, sharded_copy=False)
    copies = name == "to" and constant(call.kwargs.get("copy", Const(None))) is True
    if (name in _WHOLE_COPIES or copies) and gathers(run.contexts):
        return replace(derived(receiver, partial=partial), unsharded_copy=True)
    return receiver if name == "detach" else derived(receiver, partial=partial)

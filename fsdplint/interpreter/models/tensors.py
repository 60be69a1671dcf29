"""Parameters and gradients as tensors, and reductions over sharded ones.

Each rank holds the result of a reduction over a DTensor (`grad.norm()`) for its own shard. A
conversion to a Python number returns that partial result.
"""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter import losses
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.ignored_parameters import owners_of_ignored
from fsdplint.interpreter.models.registry import FUNCTIONS, function, method
from fsdplint.interpreter.module_tree import sharding_of_parameters
from fsdplint.interpreter.rank_local import derive_rank_local, own_data
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.sharded_parameters import appears_sharded, must_be_sharded
from fsdplint.interpreter.torch_values import (
    LOCAL_PART,
    LocalGradient,
    ParametersOf,
    ShardTensor,
    TensorValue,
)
from fsdplint.interpreter.values import Const, ModuleValue, Sequence, Unknown, Value
from fsdplint.trace import (
    BackwardRun,
    Called,
    Collective,
    MixedParameters,
    PartialRead,
    Sharding,
    ShardReduced,
    Wrapped,
)
from fsdplint.trace.queries.wrappers import SHARDING
from fsdplint.trace.torch_versions import WHOLE_NORM_SINCE

# Their result is a DTensor with a pending reduction (observed on torch 2.13).
REDUCTIONS = (
    "norm", "sum", "mean", "max", "min", "amax", "amin", "any", "all", "prod", "count_nonzero",
)  # fmt: skip
# Element by element; the result is sharded like the tensor.
ELEMENTWISE = (
    "detach", "clone", "contiguous", "float", "double", "half", "bfloat16", "abs", "abs_", "pow",
    "square", "isnan", "isinf", "isfinite", "neg",
)  # fmt: skip
# They keep a reduced tensor as it is.
SAME = ("detach", "cpu", "cuda", "float", "reshape", "squeeze", "to")
MOVING = ("cuda", "to")  # they may give a tensor on another device
# Attributes by which code distinguishes a DTensor from a plain tensor.
OF_DTENSORS = {"full_tensor", "to_local", "_local_tensor", "placements", "device_mesh", "_spec"}
# Attributes of a parameter that are sharded like it.
# Arguments with which a reduction still covers all elements.
_PLAIN_ARGUMENTS = {"p", "ord", "dtype", "input"}


def gradient(run: Run, parameter: ParametersOf) -> ShardTensor:
    """`p.grad`"""
    certain = must_be_sharded(run, parameter, gradient=True)
    losses.forget_division(run)
    found = ShardTensor(
        "gradient",
        parameter.modules,
        must_be_dtensor=certain,
        appears_sharded=appears_sharded(run, parameter, gradient=True),
        own=parameter.name != "",
    )
    if not certain and not run.decisions.single_rank and _is_flat_shard(run, found):
        found.rank_local = own_data(run, run.site(run.executing))
    return found


def has_sharded_gradients(run: Run, parameters: Value | None) -> bool:
    """Whether the gradients of some parameters are certainly DTensors here."""
    value = run.settle(parameters) if parameters is not None else None
    if isinstance(value, Sequence) and value.items:
        return all(has_sharded_gradients(run, item) for item in value.items)
    if isinstance(value, ShardTensor):
        return value.source == "gradient" and not value.reduction and value.must_be_dtensor
    return isinstance(value, ParametersOf) and must_be_sharded(run, value, gradient=True)


@function("torch.nn.utils.get_total_norm", "torch.nn.utils._get_total_norm")
def total_norm(run: Run, name: str, call: Call) -> Value:
    """The norm of all gradients, which `clip_grad_norm_` returns, too."""
    gradients = call.arg(0, "tensors")
    if not has_sharded_gradients(run, gradients):
        local = derive_rank_local(*_items(run, gradients))
        return TensorValue("norm", rank_local=replace(local, number=True) if local else None)
    return ShardTensor("norm", must_be_dtensor=True, reduction=PartialRead.CLIPPED)


def _items(run: Run, value: Value | None) -> list[Value]:
    value = run.settle(value) if value is not None else None
    return [run.settle(one) for one in value.items] if isinstance(value, Sequence) else []


def is_plain(value: Value) -> bool:
    """Whether a value is certainly no DTensor: a gathered tensor, or this rank's part of one."""
    return isinstance(value, TensorValue) and value.source in {"full", "local", LOCAL_PART}


def as_shard(run: Run, value: Value | None) -> ShardTensor | None:
    """A parameter or gradient as a tensor; None for every other value."""
    if isinstance(value, ShardTensor):
        return value
    if isinstance(value, ParametersOf) and value.element:
        certain = must_be_sharded(run, value)
        return ShardTensor("parameter", value.modules, must_be_dtensor=certain)
    return None


# Reductions -------------------------------------------------------------------------------------


def _reduce(run: Run, tensor: ShardTensor, name: str, args: list[Value], call: Call) -> Value:
    if tensor.reduction == PartialRead.CLIPPED:
        return tensor  # a reduction of one number
    whole = not call.open and set(call.kwargs) <= _PLAIN_ARGUMENTS
    if tensor.reduction or not whole or (args and not name.endswith("norm")) or len(args) > 1:
        return TensorValue("derived", tensor.modules)
    return ShardTensor(name, tensor.modules, must_be_dtensor=tensor.must_be_dtensor, reduction=name)


@method("ParametersOf", *REDUCTIONS)
@method("ShardTensor", *REDUCTIONS)
def reduce_method(run: Run, receiver: Value, name: str, call: Call) -> Value:
    tensor = as_shard(run, receiver)
    if tensor is None:
        return Unknown(varying=True)
    return _reduce(run, tensor, name, call.args, call)


@function(*(f"torch.{name}" for name in REDUCTIONS), "torch.linalg.norm",
          "torch.linalg.vector_norm")  # fmt: skip
def reduce_function(run: Run, name: str, call: Call) -> Value:
    tensor = as_shard(run, call.arg(0, "input"))
    if tensor is None:
        return FUNCTIONS["torch."](run, name, call)
    last = "norm" if name.endswith("norm") else name.rpartition(".")[2]
    return _reduce(run, tensor, last, call.args[1:], call)


@function("torch.isnan", "torch.isinf", "torch.isfinite", "torch.abs", "torch.square")
def elementwise_function(run: Run, name: str, call: Call) -> Value:
    tensor = as_shard(run, call.arg(0, "input"))
    if tensor is None:
        return FUNCTIONS["torch."](run, name, call)
    if tensor.reduction:
        return TensorValue("derived", tensor.modules)
    return tensor


@method("ShardTensor", *dict.fromkeys(ELEMENTWISE + SAME))
def elementwise_method(run: Run, receiver: ShardTensor, name: str, call: Call) -> Value:
    if name in SAME or not receiver.reduction:
        return replace(receiver, moved=True) if name in MOVING else receiver
    return TensorValue("derived", receiver.modules)


@method("ParametersOf", "full_tensor")
@method("ShardTensor", "full_tensor")
def full_tensor(run: Run, receiver: ParametersOf | ShardTensor, name: str, call: Call) -> Value:
    if not (isinstance(receiver, ShardTensor) and receiver.reduction == PartialRead.CLIPPED):
        gather(run, receiver, call.node)
    return TensorValue("full", receiver.modules)


def gather(run: Run, value: Value, node: cst.CSTNode) -> None:
    """`full_tensor()` of a parameter or gradient; flat parameters of FSDP1 have no such method."""
    if sharding_of_parameters(run, value) is Sharding.FSDP2:
        modules: tuple[str, ...] = ()
        if isinstance(value, ParametersOf | ShardTensor) and not value.moved:
            modules = tuple(module.id for module in value.modules)
        run.emit(Collective, node, api="full_tensor", parameters_of=modules, collective=True)


def gather_unseen(run: Run, function: Unknown, node: cst.CSTNode) -> None:
    """`full_tensor()` of a parameter of a part of unknown class, which a plain tensor lacks."""
    value: Value | None = function.owner
    while isinstance(value, Unknown) and value.part_of is None:
        value = run.settle(value.owner) if value.owner is not None else None
    model = value.part_of if isinstance(value, Unknown) else value
    if isinstance(model, ModuleValue):
        gather(run, ParametersOf((model,), moved=True), node)  # it may be


@method("ShardTensor", "to_local")
def to_local(run: Run, receiver: ShardTensor, name: str, call: Call) -> Value:
    return local_tensor(run, receiver)


def local_tensor(run: Run, value: ShardTensor) -> TensorValue:
    """This rank's part of a parameter or gradient."""
    exact = value.source == "gradient" and not value.reduction and value.must_be_dtensor
    partial = bool(value.reduction) and value.must_be_dtensor
    if value.reduction == PartialRead.CLIPPED:  # a whole number, but for an old torch
        partial = partial and run.trace.lacks(WHOLE_NORM_SINCE)
    own = None
    if (exact or partial) and not run.decisions.single_rank:
        own = own_data(run, run.site(run.executing))
        own.number = partial
        if exact:
            run.own_gradients.add(own.source)
    if not exact:
        return TensorValue("local", value.modules, rank_local=own)
    return LocalGradient("local", value.modules, rank_local=own)


def is_own_part(run: Run, value: Value) -> bool:
    """Whether a tensor is certainly the part of a gradient that only this rank holds."""
    if isinstance(value, ShardTensor):
        whole = value.source == "gradient" and not value.reduction
        return whole and (value.must_be_dtensor or _is_flat_shard(run, value))
    return isinstance(value, LocalGradient)


def note_shard_reduction(run: Run, value: Value | None, node: cst.CSTNode) -> None:
    """Record an `all_reduce` of a sharded gradient over all ranks."""
    value = run.settle(value) if value is not None else None
    local = isinstance(value, LocalGradient)
    whole = isinstance(value, ShardTensor) and not value.reduction and value.must_be_dtensor
    if isinstance(value, ShardTensor) and value.source == "gradient" and not value.reduction:
        local = not whole and _is_flat_shard(run, value)
        if whole or local:
            run.emit(ShardReduced, node, local=local)
    elif local:
        run.emit(ShardReduced, node, local=True)


def _is_flat_shard(run: Run, gradient: ShardTensor) -> bool:
    """Whether FSDP1 certainly shards a gradient, which each rank holds a part of after backward."""
    last = next(
        (e for e in reversed(run.trace.events) if isinstance(e, Called | BackwardRun)), None
    )
    if not isinstance(last, BackwardRun) or not gradient.modules:
        return False
    for module in gradient.modules:
        family = {*run.trace.submodules(module.id), *run.trace.ancestors(module.id)}
        wraps = [event for event in run.trace.of(Wrapped) if {event.module, event.inner} & family]
        # The wrapper flattens all parameters, also those of a model whose parts are not known.
        if module.wrapper != "fsdp1" or any(run.trace.modules[one].escaped for one in family):
            return False
        if not all(_shards(event) for event in wraps):
            return False
    return True


def _shards(event: Wrapped) -> bool:
    """Whether FSDP1 certainly shards all parameters, over all ranks or over those of one node."""
    strategy = str(event.options.get("sharding_strategy", "FULL_SHARD")).rpartition(".")[2]
    others = {"**", "ignored_modules", "ignored_states", "ignored_parameters", "process_group"}
    others.add("device_mesh")
    return strategy in {*SHARDING, "None"} and not others & set(event.options)


# Numbers ----------------------------------------------------------------------------------------


def read_number(run: Run, value: Value, api: str, node: cst.CSTNode) -> bool:
    """Record the conversion of a parameter or gradient to a number; False for other values."""
    if not isinstance(value, ShardTensor):
        return False
    if value.reduction:
        run.emit(
            PartialRead, node, api=api, reduction=value.reduction, partial=value.must_be_dtensor
        )
    return True


@method("ShardTensor", "item")
def item(run: Run, receiver: ShardTensor, name: str, call: Call) -> Value:
    read_number(run, receiver, "item", call.node)
    return Unknown(varying=True)


@method("ShardTensor", "numel", "dim", "size", "nelement", "element_size")
def measure(run: Run, receiver: ShardTensor, name: str, call: Call) -> Value:
    return Unknown(varying=True)


def combine(left: Value, right: Value) -> TensorValue | None:
    """The result of arithmetic with a parameter or gradient; None without one."""
    for value, other in ((left, right), (right, left)):
        if isinstance(value, ShardTensor):
            if not value.reduction and isinstance(other, Const):
                return value
            return TensorValue("derived", value.modules)
    return None


# Sharded and plain tensors together -------------------------------------------------------------


def emit_mixed(run: Run, value: Value | None, api: str, node: cst.CSTNode) -> None:
    """Record an operation on all parameters of a module if some of them are not sharded.

    Only `module.parameters()` itself counts: a selection may contain one kind only.
    """
    value = run.settle(value) if value is not None else Unknown()
    if not isinstance(value, ParametersOf) or value.element or not value.complete:
        return
    created_at = value.created_at.node if value.created_at is not None else None
    if not isinstance(created_at, cst.Call) or not isinstance(created_at.func, cst.Attribute):
        return
    if created_at.func.attr.value != "parameters" or run.calling:
        return
    for module in value.modules:
        if not run.trace.family_escaped(module.id) and _leaves_out(run, module):
            run.emit(MixedParameters, node, api=api)
            return


def _leaves_out(run: Run, module: ModuleValue) -> bool:
    """Whether a sharded module has trainable parameters in `ignored_params`."""
    if not module.sharded:
        return False
    owners, every = owners_of_ignored(run, module.attributes.get("*ignored"))
    parts = {part for owner in owners for part in run.trace.submodules(owner.id)}
    inside = bool(parts) and parts < set(run.trace.submodules(module.id))
    kept = [run.trace.modules[m] for m in run.trace.submodules(module.id) if m not in parts]
    known = [run.trace.modules[m] for m in parts if run.trace.modules[m].own_parameters]
    trained = [not m.frozen for m in known]
    return (
        inside
        and bool(trained)
        and (any(trained) if every else all(trained))
        and any(m.own_parameters and not m.frozen for m in kept)
    )

"""Optimizers, schedulers, gradient scalers and gradient clipping."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter import gradient_writes
from fsdplint.interpreter.branch_conditions import Truth, truth_of
from fsdplint.interpreter.choices import ANY
from fsdplint.interpreter.decided_values import try_other_options
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.hooks import Moment, fire
from fsdplint.interpreter.models import tensors
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.module_tree import sharding_inside
from fsdplint.interpreter.optimizers import (
    build_optimizer,
    fill_optimizer,
    lose_optimizer,
    owners_of,
    stale_modules,
)
from fsdplint.interpreter.option_texts import INFINITE, bound
from fsdplint.interpreter.own_optimizers import fill_own_optimizer
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf, ScalerValue, ShardTensor, TensorValue
from fsdplint.interpreter.values import (
    Condition,
    Const,
    LibraryObject,
    Method,
    OptimizerValue,
    Unknown,
    Value,
)
from fsdplint.syntax.arguments import arguments
from fsdplint.trace import (
    BackwardRun,
    Clipped,
    Fsdp1Used,
    GradientScaled,
    GradientsZeroed,
    Guard,
    OptimizerStepped,
    PartialRead,
    ScalerBuilt,
    ScalerStepped,
    ScalerUnscaled,
    ScalerUpdated,
    Sharding,
)


@function("torch.optim.")
def optimizer(run: Run, name: str, call: Call) -> Value:
    last = name.rpartition(".")[2]
    if name.startswith("torch.optim.swa_utils."):
        return LibraryObject(name, {str(n): v for n, v in enumerate(call.args)} | call.kwargs)
    receiver = run.settle(call.args[0]) if call.args else None
    if isinstance(receiver, OptimizerValue) and last != ANY:  # `Adam.__init__(optimizer, params)`
        return run.call(Method(receiver, last), replace(call, args=call.args[1:]))
    if last == "__init__" and receiver is not None:
        if fill_own_optimizer(run, receiver, replace(call, args=call.args[1:])):
            return Const(None)
    if last != ANY and not last[:1].isupper() or last == "Optimizer":
        return Unknown()
    return build_optimizer(run, "Optimizer" if last == ANY else last, call)


@function("torch.distributed.optim.ZeroRedundancyOptimizer")
def zero_optimizer(run: Run, name: str, call: Call) -> Value:
    return build_optimizer(run, "ZeroRedundancyOptimizer", call)


@method("OptimizerValue", "__init__")
def init(run: Run, receiver: OptimizerValue, name: str, call: Call) -> Value:
    fill_optimizer(run, receiver, call)
    return Const(None)


@method("OptimizerValue", "step")
def step(run: Run, receiver: OptimizerValue, name: str, call: Call) -> Value:
    _step(run, receiver, call)
    return Unknown()


def _step(run: Run, optimizer: OptimizerValue, call: Call) -> None:
    fire(run, Moment.BEFORE_STEP, call.node, optimizer)
    only_optimizers = all(
        isinstance(run.settle(one), OptimizerValue) for one in (*call.args, *call.kwargs.values())
    )
    run.emit(
        OptimizerStepped,
        call.node,
        optimizer=optimizer.id,
        without_gradients=only_optimizers and gradient_writes.are_zero(run, optimizer.id),
        adds_to_used=only_optimizers and gradient_writes.are_kept(run, optimizer.id, call.node),
    )
    fire(run, Moment.AFTER_STEP, call.node, optimizer)


@method("OptimizerValue", "zero_grad")
def zero_grad(run: Run, receiver: OptimizerValue, name: str, call: Call) -> Value:
    retried = bool(run.own_turns) and run.own_turns[-1].may_end_early
    unused = _are_unread(run)
    _note_reads(run)
    run.emit(GradientsZeroed, call.node, optimizer=receiver.id, unused=unused, retried=retried)
    return Const(None)


def _note_reads(run: Run) -> None:
    """Note which scaled gradients the program may have read since: not only to scale others."""
    last: dict[object, int] = {}
    for event in reversed(run.trace.events):
        if isinstance(event, BackwardRun):
            return
        if isinstance(event, GradientScaled):
            end = last.setdefault(event.site, event.index)
            event.read_later = run.gradients_read_at > end


def _are_unread(run: Run) -> bool:
    """Whether the program has read or changed no gradient since the last backward pass."""
    for event in reversed(run.trace.events):
        if isinstance(event, BackwardRun):
            return event.index >= run.gradients_read_at
    return True


@method("OptimizerValue", "add_param_group")
def add_group(run: Run, receiver: OptimizerValue, name: str, call: Call) -> Value:
    lose_optimizer(run, receiver)
    modules, _ = owners_of(run, call.arg(0, "param_group"))
    receiver.modules = (*receiver.modules, *(m for m in modules if m not in receiver.modules))
    return Const(None)


# The gradient scalers, and which of their parameters `enabled` is.
ENABLED = {
    "torch.cuda.amp.GradScaler": 4,
    "torch.amp.GradScaler": 5,
    "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler": 5,
}


@function(*ENABLED)
def grad_scaler(run: Run, name: str, call: Call) -> Value:
    if name.endswith(".ShardedGradScaler"):
        run.emit(Fsdp1Used, call.node, api="ShardedGradScaler")
    given = {str(n): v for n, v in enumerate(call.args)} | call.kwargs
    scaler = ScalerValue(name, given, call.open, id=run.new_id("scaler"))
    enabled, guards = _scaler_enabled(run, name, call)
    with run.under_guards(guards):
        if guards and name.endswith(".GradScaler"):
            run.mark_relevant()
        run.emit(
            ScalerBuilt,
            call.node,
            scaler=scaler.id,
            class_name=name.rpartition(".")[2],
            enabled=enabled,
        )
    return scaler


def _scaler_enabled(run: Run, name: str, call: Call) -> tuple[bool | None, list[tuple[Guard, str]]]:
    """Whether a scaler is enabled, None if unknown, and the conditions that decide it."""
    value = call.arg(ENABLED[name], "enabled")
    if value is None:
        return None if call.open else True, []
    node = _argument_node(call.node, ENABLED[name], "enabled") or call.node
    value = run.settle(value)
    if isinstance(value, Unknown) and value.is_default and isinstance(value.default, Const):
        return bool(value.default.value), []
    if not isinstance(node, cst.BaseExpression) or not isinstance(
        value, Const | Condition | Unknown
    ):
        return None, []
    verdict = truth_of(run, value, node, prefer=True)
    known = {Truth.TRUE: True, Truth.FALSE: False}.get(verdict.outcome)
    return known, verdict.guards if known is not None else []


def _argument_node(call: cst.CSTNode, position: int, name: str) -> cst.BaseExpression | None:
    """The expression that a call passes as a parameter."""
    if not isinstance(call, cst.Call):
        return None
    parameters = [*map(str, range(position)), name]
    found = arguments(call, parameters)[0].get(name)
    return found.value if found is not None else None


@method("LibraryObject", "step")
@method("ScalerValue", "step")
@method("Unknown", "step")
def scaler_step(run: Run, receiver: Value, name: str, call: Call) -> Value:
    """`scaler.step(optimizer)`"""
    given = call.arg(0, "optimizer")
    target = run.settle(given) if given is not None else None
    if isinstance(target, OptimizerValue):
        if isinstance(receiver, ScalerValue):
            run.emit(ScalerStepped, call.node, scaler=receiver.id, optimizer=target.id)
        _step(run, target, call)
    return Unknown()


@method("LibraryObject", "scale")
@method("ScalerValue", "scale")
def scale_loss(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    return call.arg(0, "outputs") or Unknown()


@method("Unknown", "scale")
def scale_unknown(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    value = call.args[0] if call.args else None
    return value if isinstance(value, TensorValue) else Unknown()


@method("ScalerValue", "unscale_")
def unscale(run: Run, receiver: ScalerValue, name: str, call: Call) -> Value:
    """`scaler.unscale_(optimizer)`; an optimizer that is not known may be any of the program."""
    target = run.settle(call.arg(0, "optimizer") or Unknown())
    known = [one for one in run.objects.values() if isinstance(one, OptimizerValue)]
    for optimizer in [target] if isinstance(target, OptimizerValue) else known:
        run.emit(ScalerUnscaled, call.node, scaler=receiver.id, optimizer=optimizer.id)
    return Unknown()


@method("ScalerValue", "update")
def update_scaler(run: Run, receiver: ScalerValue, name: str, call: Call) -> Value:
    run.emit(ScalerUpdated, call.node, scaler=receiver.id)
    return Const(None)


@method("LibraryObject", "unscale_", "update", "state_dict", "load_state_dict")
def scaler_method(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    return Unknown()


@function("torch.nn.utils.clip_grads_with_norm_", "torch.nn.utils._clip_grads_with_norm_")
def clip_with_norm(run: Run, name: str, call: Call) -> Value:
    """A norm that is known makes an event: of the rank's own part, or of DTensors, of all parts.

    Any other may be of either.
    """
    norm = call.arg(2, "total_norm")
    norm = run.settle(norm) if norm is not None else None
    if local_of(norm) is not None or isinstance(norm, ShardTensor):
        modules, _ = owners_of(run, call.arg(0, "parameters"))
        run.emit(
            Clipped,
            call.node,
            api="with_norm",
            modules=tuple(module.id for module in modules),
            max_norm=bound(run, call.arg(1, "max_norm")),
        )
    sharded = tensors.has_sharded_gradients(run, call.arg(0, "parameters"))
    if sharded and local_of(norm) is not None:
        run.emit(GradientScaled, call.node, differs=True)
    elif sharded and norm in run.sums_of_roots:
        run.emit(GradientScaled, call.node, by_norms=True)
    return Const(None)


def _is_whole(run: Run, parameters: Value | None) -> bool:
    """Whether a value certainly has all parameters of its modules, without a choice."""
    value = run.settle(parameters) if parameters is not None else None
    return (
        isinstance(value, ParametersOf)
        and not (value.filtered_by or value.by_name or value.left_out or value.name)
        and not (value.derived or value.element)
        and value.complete
        and value.every
    )


@function("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_",
          "torch.nn.utils.clip_grad_norm")  # fmt: skip
def clip(run: Run, name: str, call: Call) -> Value:
    modules, _ = owners_of(run, call.arg(0, "parameters"))
    last = name.rpartition(".")[2]
    by_norm = "norm" in last
    if bound(run, call.arg(1, "max_norm")) == INFINITE:  # it only measures the norm
        try_other_options(run, call)
    # Under FSDP1, the function clips by the norm of the rank's part, without communication.
    sharded = any(sharding_inside(run, module) is Sharding.FSDP2 for module in modules)
    run.emit(
        Clipped,
        call.node,
        api="utils",
        modules=tuple(m.id for m in modules),
        stale=stale_modules(run, call.arg(0, "parameters")),
        by_norm=by_norm,
        max_norm=bound(run, call.arg(1, "max_norm")),
        whole=_is_whole(run, call.arg(0, "parameters")),
        without_gradients=gradient_writes.are_zero_in(run, modules),
        again=gradient_writes.are_clipped(run, call.node),
        collective=sharded and by_norm,
    )
    if by_norm:
        tensors.emit_mixed(run, call.arg(0, "parameters"), last, call.node)
    if not by_norm:
        return Const(None)
    if tensors.has_sharded_gradients(run, call.arg(0, "parameters")):
        return ShardTensor(
            "norm", tuple(modules), must_be_dtensor=True, reduction=PartialRead.CLIPPED
        )
    return TensorValue("norm", tuple(modules))

"""Schedulers of torch, and the states of schedulers and gradient scalers."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.functions import parameters_of
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    HelperState,
    ScalerValue,
    SchedulerValue,
    StateValue,
    note_result_use,
)
from fsdplint.interpreter.values import (
    Const,
    Function,
    LibraryObject,
    OptimizerValue,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
)
from fsdplint.syntax.named_sites import names_in
from fsdplint.trace import HelperStateLoaded, HelperStateTaken, SchedulerBuilt, SchedulerStepped

_SCHEDULERS = "torch.optim.lr_scheduler."
_OF_LIBRARIES = (
    "get_constant_schedule get_constant_schedule_with_warmup get_cosine_schedule_with_warmup "
    "get_cosine_with_hard_restarts_schedule_with_warmup get_linear_schedule_with_warmup "
    "get_cosine_with_min_lr_schedule_with_warmup get_inverse_sqrt_schedule "
    "get_piecewise_constant_schedule get_polynomial_decay_schedule_with_warmup get_wsd_schedule"
).split()


@function(*(f"{home}.{name}"
            for home in ("transformers", "transformers.optimization", "diffusers.optimization")
            for name in (*_OF_LIBRARIES, "get_scheduler")))  # fmt: skip
def schedule_of_library(run: Run, name: str, call: Call) -> Value:
    """A scheduler of Transformers or Diffusers, which is a `LambdaLR`."""
    position = 1 if name.endswith(".get_scheduler") else 0
    of = run.settle(call.arg(position, "optimizer") or Unknown())
    if not isinstance(of, OptimizerValue):
        return Unknown()
    return _build(run, call, of, SchedulerValue(_SCHEDULERS + "LambdaLR", {"0": of}))


@function(_SCHEDULERS)
def scheduler(run: Run, name: str, call: Call) -> Value:
    of = run.settle(call.arg(0, "optimizer") or Unknown())
    given = {str(n): v for n, v in enumerate(call.args)} | call.kwargs
    if not isinstance(of, OptimizerValue) or not name.rpartition(".")[2][:1].isupper():
        return LibraryObject(name, given)
    return _build(run, call, of, SchedulerValue(name, given))


def _build(run: Run, call: Call, of: OptimizerValue, value: SchedulerValue) -> Value:
    value.id = run.new_id("scheduler")
    run.emit(
        SchedulerBuilt,
        call.node,
        optimizer=of.id,
        scheduler=value.id,
        class_name=value.name.rpartition(".")[2],
        goes_on=_goes_on(value, call),
        by_steps=_counts_steps(run, value),
    )
    return value


# The position of `last_epoch` where it is not the fourth argument.
_THIRD = (".LambdaLR", ".MultiplicativeLR", ".ExponentialLR")


# Others compute the next rate from the last one, which the state of the optimizer has.
_BY_STEPS = frozenset(
    "CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR LambdaLR OneCycleLR".split()
)


def _counts_steps(run: Run, value: SchedulerValue) -> bool:
    """Whether the learning rate certainly depends on the number of its steps.

    A function of the program may also read another counter, which a checkpoint restores.
    """
    functions = value.get("1", "lr_lambda") if value.name.endswith(".LambdaLR") else None
    if functions is None:
        return value.name.rpartition(".")[2] in _BY_STEPS
    functions = run.settle(functions)
    items = functions.items if isinstance(functions, Sequence) else [functions]
    return all(_reads_its_number(run.settle(one)) for one in items)


def _reads_its_number(function: Value) -> bool:
    """Whether a function reads nothing but its parameters and what the program has imported."""
    if not isinstance(function, Function):
        return False
    given = {one.name.value for one in parameters_of(function.node.params)}
    values = (function.scope.lookup(name) for name in names_in(function.node.body) - given)
    return all(value is None or isinstance(value, Symbol) for value in values)


def _goes_on(value: SchedulerValue, call: Call) -> bool:
    """Whether a scheduler gets, or may get, the epoch that it goes on from."""
    position = 2 if value.name.endswith(_THIRD) else 3
    given = call.arg(position, "last_epoch")
    if isinstance(given, Unknown) and given.default is not None:
        given = given.default  # of a parameter, unless settings give it
    return (
        call.open or len(call.args) > position + 1 or (given is not None and constant(given) != -1)
    )


@method("SchedulerValue", "step")
def step(run: Run, receiver: SchedulerValue, name: str, call: Call) -> Value:
    of = run.settle(receiver.get("0", "optimizer") or Unknown())
    metric = call.arg(0, "metrics")
    if isinstance(of, OptimizerValue):
        run.emit(
            SchedulerStepped,
            call.node,
            optimizer=of.id,
            scheduler=receiver.id,
            metric_differs=metric is not None and local_of(run.settle(metric)) is not None,
            with_epoch=_gets_epoch(receiver, call),
        )
    return Const(None)


def _gets_epoch(receiver: SchedulerValue, call: Call) -> bool:
    first = 1 if receiver.name.endswith(".ReduceLROnPlateau") else 0
    return call.open or "epoch" in call.kwargs or len(call.args) > first


@method("ScalerValue", "state_dict")
@method("SchedulerValue", "state_dict")
def take_state(
    run: Run, receiver: SchedulerValue | ScalerValue, name: str, call: Call
) -> HelperState:
    state = HelperState(id=run.new_id("state"))
    run.unchanged_states.append(state)
    run.emit(HelperStateTaken, call.node, state=state.id, of=receiver.id)
    return state


@method("ScalerValue", "load_state_dict")
@method("SchedulerValue", "load_state_dict")
def load_state(run: Run, receiver: SchedulerValue | ScalerValue, name: str, call: Call) -> Value:
    state = run.settle(call.arg(0, "state_dict") or Unknown())
    note_result_use(state)
    known = state.id if isinstance(state, StateValue | HelperState) else None
    unchanged = isinstance(state, HelperState) and not state.parts and state in run.unchanged_states
    run.emit(HelperStateLoaded, call.node, into=receiver.id, state=known, unchanged=unchanged)
    return Unknown()

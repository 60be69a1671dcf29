"""Optimizers that the program builds anew in each turn of a loop, over the same parameters.

The new one has no moments. Only what nothing in between explains counts: the program sets, loads
or resets no weights, freezes nothing, and the options are the same in each turn.
"""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.method_names import attribute_name
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import (
    Const,
    Method,
    OptimizerValue,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
)
from fsdplint.source.source import NodeSite
from fsdplint.trace import (
    BackwardRun,
    DataReplaced,
    Escaped,
    GroupOptionSet,
    ModuleAttached,
    ModuleBuilt,
    OptimizerBuilt,
    OptimizerStepped,
    ParameterMarked,
    RequiresGradSet,
    Sharded,
    StateLoaded,
    WeightsSet,
    Wrapped,
)

_KEEP_MOMENTS = frozenset(
    "Adadelta Adafactor Adagrad Adam AdamW Adamax NAdam Muon RAdam RMSprop SparseAdam".split()
)
_READS = ("builtins.", "torch.nn.utils.clip_grad", "torch.nn.utils.get_total_norm", "torch.optim.")
_EXPLAINS = (
    DataReplaced,
    Escaped,
    GroupOptionSet,
    ModuleAttached,
    ModuleBuilt,
    ParameterMarked,
    RequiresGradSet,
    Sharded,
    StateLoaded,
    WeightsSet,
    Wrapped,
)


def note_call(run: Run, function: Value, call: Call) -> None:
    """Note a call of a library that may set parameters: initializers, and methods of parameters."""
    name = ""
    if isinstance(function, Method):
        name = function.name
    elif isinstance(function, Unknown):
        name = attribute_name(function)
    symbol = function.name if isinstance(function, Symbol) else ""
    receiver = function.receiver if isinstance(function, Method) else None
    if isinstance(function, Unknown):
        receiver = function.owner
    given = isinstance(receiver, ParametersOf) and name.endswith("_")
    if symbol and not symbol.startswith(_READS):
        given = any(isinstance(one, ParametersOf) for one in call.values)
    if given or "reset" in name or "init" in name or symbol.startswith("torch.nn.init."):
        run.weights_touched_at = len(run.trace.events)


def is_built_again(run: Run, optimizer: OptimizerValue, call: Call) -> bool:
    """Whether an optimizer without an event replaces one of the turn before that has stepped."""
    if not _keeps_moments(optimizer, call) or not _has_same_options(run, call):
        return False
    modules = tuple(one.id for one in optimizer.modules)
    stepped, learned = set(), False
    for event in reversed(run.trace.events):
        if isinstance(event, _EXPLAINS):
            return False
        if isinstance(event, OptimizerStepped):
            stepped.add(event.optimizer)
        learned |= isinstance(event, BackwardRun)
        if isinstance(event, OptimizerBuilt) and set(event.modules) & set(modules):
            return (
                isinstance(event.site, NodeSite)
                and event.site.node is call.node
                and list(event.stack) == list(run.stack)
                and event.modules == modules
                and event.in_loop
                and learned
                and event.optimizer in stepped
                and run.weights_touched_at <= event.index + 1
            )
    return False


def _keeps_moments(optimizer: OptimizerValue, call: Call) -> bool:
    if optimizer.library != "torch" or call.open:
        return False
    if optimizer.class_name == "SGD":
        momentum = constant(call.arg(2, "momentum") or Const(0))
        return isinstance(momentum, int | float) and momentum > 0
    return optimizer.class_name in _KEEP_MOMENTS


def _has_same_options(run: Run, call: Call) -> bool:
    """Whether no option of an optimizer may be another one in each turn."""
    given = map(run.settle, [*call.args[1:], *(v for k, v in call.kwargs.items() if k != "params")])
    options = [part for one in given for part in _parts(one)]
    return all(
        isinstance(one, Const) or (isinstance(one, Unknown) and one.origin and not one.varying)
        for one in options
    ) and isinstance(run.settle(call.arg(0, "params") or Unknown()), ParametersOf)


def _parts(value: Value) -> list[Value]:
    return list(value.items) if isinstance(value, Sequence) else [value]

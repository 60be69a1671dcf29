"""Functions that run in other processes: on the ranks that a program launches, or as workers."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.ranks import is_rank_name, value_by_name
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import RankValue
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Dict,
    Function,
    Instance,
    LibraryObject,
    Method,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
    is_none,
)
from fsdplint.trace import RunElsewhere

_ELASTIC = "torch.distributed.launcher"
_STARTED = "torch.distributed.launcher.elastic_launch()"
PROCESSES = (
    "torch.multiprocessing.Process",
    "multiprocessing.Process",
    "multiprocessing.context.Process",
    "multiprocessing.process.Process",
    "torch.multiprocessing.process.Process",
)
_TRAINERS = ("ray.train.torch.TorchTrainer", "ray.train.torch.torch_trainer.TorchTrainer")


def call_elsewhere(run: Run, target: Value, call: Call) -> Value:
    """Call a function of the project in other processes."""
    target = run.settle(target)
    if not isinstance(target, Function | Bound | Partial | Instance | Class):
        return Unknown()
    run.unseeded.clear()  # a forked process has the generators of its parent
    run.emit(RunElsewhere, call.node)
    result = run.call(target, call)
    run.emit(RunElsewhere, call.node)
    return result


def _items(value: Value | None) -> tuple[list[Value], bool]:
    """The arguments in a tuple, and whether there may be others."""
    if isinstance(value, Sequence):
        return list(value.items), value.open
    return [], value is not None


# Launchers ----------------------------------------------------------------------------------------


@function("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
def spawn(run: Run, name: str, call: Call) -> Value:
    """`mp.spawn(fn, args=...)` calls fn(rank, *args) on every rank."""
    args = call.arg(1, "args")
    items, _ = _items(args)
    inner = Call(call.node, [RankValue("global"), *items], open=args is None)
    call_elsewhere(run, call.arg(0, "fn") or Unknown(), inner)
    return Const(None)


@function(*(f"{home}.{name}" for home in ("accelerate", "accelerate.launchers")
            for name in ("notebook_launcher", "debug_launcher")))  # fmt: skip
def launch_in_notebook(run: Run, name: str, call: Call) -> Value:
    items, is_open = _items(call.arg(1, "args"))
    inner = Call(call.node, items, open=is_open)
    call_elsewhere(run, call.arg(0, "function") or Unknown(), inner)
    return Const(None)


@function(f"{_ELASTIC}.elastic_launch", f"{_ELASTIC}.api.elastic_launch")
def elastic_launch(run: Run, name: str, call: Call) -> Value:
    """`elastic_launch(config, fn)(*args)` calls fn(*args) on every rank."""
    return Partial(Symbol(_STARTED), [call.arg(1, "entrypoint") or Unknown()])


@function(_STARTED)
def launch_elastic(run: Run, name: str, call: Call) -> Value:
    target, *args = call.args
    call_elsewhere(run, target, Call(call.node, args, dict(call.kwargs), call.open))
    return Unknown()


@function(f"{_ELASTIC}.launch_agent", f"{_ELASTIC}.api.launch_agent")
def launch_agent(run: Run, name: str, call: Call) -> Value:
    items, is_open = _items(call.arg(2, "args"))
    inner = Call(call.node, items, open=is_open)
    call_elsewhere(run, call.arg(1, "entrypoint") or Unknown(), inner)
    return Unknown()


# Processes ----------------------------------------------------------------------------------------


@function("torch.multiprocessing.get_context", "multiprocessing.get_context")
def get_context(run: Run, name: str, call: Call) -> Value:
    """A context has the functions of the module."""
    return Symbol(name.rpartition(".")[0])


@function(*PROCESSES, "threading.Thread")
def process(run: Run, name: str, call: Call) -> Value:
    given = dict(zip(("group", "target", "name", "args", "kwargs"), call.args, strict=False))
    return LibraryObject(name, given | call.kwargs, call.open)


@method("LibraryObject", "start", "run")
def start(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    target = run.settle(receiver.get("target") or Unknown())
    if receiver.name not in (*PROCESSES, "threading.Thread"):
        return call_unknown(run, Method(receiver, name), call)
    items, is_open = _items(receiver.get("args"))
    named = receiver.get("kwargs")
    inner = Call(call.node, items, open=is_open)
    if isinstance(named, Dict):
        inner.kwargs = {str(key): value for key, value in named.items.items()}
    inner.open = inner.open or named is not None and not (isinstance(named, Dict) or is_none(named))
    if receiver.name in PROCESSES:
        _number_ranks(run, target, inner)
    call_elsewhere(run, target, inner)
    return Const(None)


def _number_ranks(run: Run, target: Value, call: Call) -> None:
    """A parameter that has the name of a rank is one, if a loop starts the processes."""
    function = target.function if isinstance(target, Bound) else target
    if not isinstance(function, Function):
        return
    params = function.node.params
    names = [param.name.value for param in (*params.posonly_params, *params.params)]
    names = names[1:] if isinstance(target, Bound) else names
    for number, (name, value) in enumerate(zip(names, call.args, strict=False)):
        if is_rank_name(name) and isinstance(value, Unknown) and value.varying:
            call.args[number] = value_by_name(name, "")
    for name, value in call.kwargs.items():
        if is_rank_name(name) and isinstance(value, Unknown) and value.varying:
            call.kwargs[name] = value_by_name(name, "")


# Ray ----------------------------------------------------------------------------------------------


@function(*_TRAINERS)
def torch_trainer(run: Run, name: str, call: Call) -> Value:
    given = dict(zip(("train_loop_per_worker",), call.args, strict=False))
    return LibraryObject(_TRAINERS[0], given | call.kwargs, call.open)


@method("LibraryObject", "fit")
def fit(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    """The loop gets the configuration if it has a parameter for it."""
    if receiver.name not in _TRAINERS:
        return call_unknown(run, Method(receiver, name), call)
    config = receiver.get("train_loop_config")
    inner = Call(call.node, [config] if config is not None else [], open=config is None)
    call_elsewhere(run, receiver.get("train_loop_per_worker") or Unknown(), inner)
    return Unknown()


@function("ray.remote")
def remote(run: Run, name: str, call: Call) -> Value:
    """A function or class keeps its identity: `.remote(...)` calls it."""
    return call.args[0] if call.args else Partial(Symbol(name))


@function("ray.get")
def get_result(run: Run, name: str, call: Call) -> Value:
    return call.arg(0, "object_refs") or Unknown()


@method("Function", "remote")
@method("Class", "remote")
@method("Bound", "remote")
def call_remote(run: Run, receiver: Value, name: str, call: Call) -> Value:
    return call_elsewhere(run, receiver, call)


@method("Function", "options")
@method("Class", "options")
@method("Bound", "options")
def with_options(run: Run, receiver: Value, name: str, call: Call) -> Value:
    return receiver

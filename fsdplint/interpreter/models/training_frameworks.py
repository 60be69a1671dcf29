"""Objects of Accelerate and Fabric that prepare models and run steps of the training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import libcst as cst

from fsdplint.interpreter import meta_device
from fsdplint.interpreter.branch_conditions import Truth, truth_of
from fsdplint.interpreter.escape import escape
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.launched_plugins import (
    is_launched_otherwise,
    launched_plugin,
)
from fsdplint.interpreter.lightning_names import FABRICS
from fsdplint.interpreter.models.backward import backward
from fsdplint.interpreter.models.model_parallel import set_up, sharding_function
from fsdplint.interpreter.models.randomness import seed_all
from fsdplint.interpreter.models.registry import MethodModel, function, method
from fsdplint.interpreter.module_tree import communicates
from fsdplint.interpreter.modules import as_module
from fsdplint.interpreter.optimizers import lose_optimizer
from fsdplint.interpreter.option_texts import option
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import LoaderValue, TensorValue
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Bound,
    Condition,
    Const,
    Context,
    Dict,
    Function,
    LibraryObject,
    ModuleValue,
    OptimizerValue,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import Clipped, Collective, Prepared, SyncSwitched

ACCELERATORS = ("accelerate.Accelerator", "accelerate.accelerator.Accelerator")


_OTHER_PLUGINS = frozenset({"cpu", "deepspeed_plugin", "megatron_lm_plugin"})
# Methods that gather a sharded model, or write or read the shards of each rank.
_GATHERING = {"get_state_dict", "save_state", "save_model"}


def methods_of(classes: Iterable[str], *names: str) -> Callable[[MethodModel], MethodModel]:
    """Register a model for methods of the objects of library classes."""

    def register(model: MethodModel) -> MethodModel:
        for name in classes:
            method(name, *names)(model)
        return model

    return register


@function(*ACCELERATORS)
def accelerator(run: Run, name: str, call: Call) -> Value:
    """`Accelerator(fsdp_plugin=plugin)` uses FSDP whatever the launcher's configuration says."""
    made = call_unknown(run, Symbol(name), call)
    if not isinstance(made, Unknown) or call.open:
        return made
    given = call.kwargs.get("fsdp_plugin")
    if given is None and not _OTHER_PLUGINS & call.kwargs.keys():
        given = launched_plugin(run)
    if given is not None:
        made.parts["fsdp_plugin"] = given
    return made


def _fsdp_plugin(run: Run, receiver: Unknown) -> Unknown | None:
    """The plugin that an Accelerator certainly shards models with."""
    value = run.settle(receiver.parts.get("fsdp_plugin", Unknown()))
    if not isinstance(value, Unknown):
        return None
    known = value.library.endswith("FullyShardedDataParallelPlugin")
    return value if known and not is_launched_otherwise(run, value) else None


def _note_preparation(run: Run, receiver: Unknown, call: Call) -> None:
    """Record which models a framework shards, if the version of FSDP is certain.

    A plugin of Accelerate with flat parameters stands for FSDP1. A model that was prepared before
    is not sharded again.
    """
    plugin = _fsdp_plugin(run, receiver)
    flat = plugin is not None and constant(plugin.parts.get("use_orig_params")) is False
    version = {"fsdp1": 1, "fsdp2": 2}.get(_sharding(run, receiver), 1 if flat else None)
    by_fabric = plugin is None and shards_by_strategy(run, receiver)
    values = [run.settle(value) for value in call.values]
    modules = tuple(
        value.id for value in values if isinstance(value, ModuleValue) and not value.framework
    )
    if modules and version is not None:
        run.emit(
            Prepared,
            call.node,
            modules=modules,
            framework="Fabric" if by_fabric else "Accelerate",
            flat=flat and version == 1,
            version=version,
        )


@methods_of(ACCELERATORS, "prepare", "prepare_data_loader", "prepare_model",
            "prepare_optimizer")  # fmt: skip
@methods_of(FABRICS, "setup", "setup_module", "setup_optimizers")
def prepare(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """Returns its arguments in their order.

    What happens to them depends on settings: a model may be sharded, and an optimizer may get the
    parameters of the sharded model. All is known of Fabric's strategies for FSDP1 and FSDP2, and of
    a plugin of Accelerate with a certain version.
    """
    shards = sharding_function(run, receiver)
    if shards is not None and not call.open and call.values:
        return _set_up(run, receiver, shards, name, call)
    _note_preparation(run, receiver, call)
    sharding = _sharding(run, receiver)
    is_known = sharding in ("fsdp1", "fsdp2") and not call.open
    if not is_known:
        escape(run, call)
    meta_device.leave_meta_in_arguments(run, call.values)
    for value in map(run.settle, call.values):
        if not is_known:
            lose_optimizer(run, value)
        if isinstance(value, ModuleValue):
            value.framework = sharding
    if call.open or not call.args:
        return Unknown()
    prepared = [_prepare(run, value) for value in call.args]
    return prepared[0] if len(prepared) == 1 else Sequence(prepared, "tuple")


def _set_up(run: Run, receiver: Unknown, shards: Value, name: str, call: Call) -> Value:
    """Shard a model by the function of a strategy. Optimizers stay as they are."""
    if name == "setup_optimizers":
        prepared = list(call.values)
    else:
        sharded = set_up(run, receiver, shards, call)
        prepared = [sharded or Unknown(), *call.args[1:]]
    return prepared[0] if len(prepared) == 1 else Sequence(prepared, "tuple")


def _sharding(run: Run, receiver: Unknown) -> str:
    """How an Accelerator or Fabric certainly shards the models that it prepares.

    The result is one of the values of `ModuleValue.framework`.
    """
    plugin = _fsdp_plugin(run, receiver)
    if plugin is not None and _keeps_whole(run, plugin):
        return ""
    if plugin is not None:
        version = constant(run.settle(plugin.parts.get("fsdp_version") or Unknown()))
        return f"fsdp{version}" if version in (1, 2) else "fsdp"
    return "fsdp1" if shards_by_strategy(run, receiver) else ""


def _keeps_whole(run: Run, plugin: Unknown) -> bool:
    """Whether a plugin has the strategy of FSDP1 that shards nothing."""
    for name in ("sharding_strategy", "reshard_after_forward"):
        value = run.settle(plugin.parts.get(name, Unknown()))
        chosen = value.name if isinstance(value, Symbol) else constant(value)
        if "NO_SHARD" in str(chosen) or chosen in ("3", 3):
            return True
    return False


def shards_by_strategy(run: Run, receiver: Unknown) -> bool:
    """Whether the strategy of a Fabric is FSDP1's, over more than one device."""
    parts = {name: run.settle(value) for name, value in receiver.parts.items()}
    strategy = parts.get("strategy", Unknown())
    if constant(parts.get("devices")) in (1, "1") and "num_nodes" not in parts:
        return False
    if isinstance(strategy, Unknown) and strategy.library.endswith(".FSDPStrategy"):
        return not _keeps_whole(run, strategy)
    return constant(strategy) == "fsdp"


@methods_of(FABRICS, "setup_dataloaders")
def set_up_loaders(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """Gives each loader a sampler of the rank, unless `use_distributed_sampler=False`."""
    own = constant(run.settle(call.kwargs.get("use_distributed_sampler", Const(True))))
    if call.open or own is not True:
        return call_unknown(run, Unknown(origin=f"{receiver.origin}.{name}"), call)
    loaders = [_prepare(run, value) for value in call.args]
    return loaders[0] if len(loaders) == 1 else Sequence(loaders, "list")


def _prepare(run: Run, value: Value) -> Value:
    value = run.settle(value)
    if isinstance(value, LoaderValue):  # each process gets every nth batch of its samples
        made = replace(value, id=run.new_id("loader"), own_parts=True, over_all=True)
        made.sampler = made.shuffle = made.order = None
        return made
    same = isinstance(value, ModuleValue | OptimizerValue | LibraryObject)
    return value if same else Unknown()


@function(
    *(f"{home}.{name}" for home in ("accelerate", "accelerate.big_modeling")
      for name in ("dispatch_model", "load_checkpoint_and_dispatch"))
)  # fmt: skip
def load_and_place(run: Run, name: str, call: Call) -> Value:
    """Puts a model on devices, perhaps with weights from files, and returns it."""
    escape(run, call)
    model = as_module(run, call.arg(0, "model"))
    if model is None:
        return Unknown()
    meta_device.leave_meta(run, [model])
    return model


@methods_of(ACCELERATORS, "unwrap_model")
def unwrap(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """The model without the wrappers of FSDP1 and DDP around it."""
    value = run.settle(call.arg(0, "model") or Unknown())
    while isinstance(value, ModuleValue) and value.wrapper in ("fsdp1", "ddp"):
        value = value.inner or Unknown()
    return value if isinstance(value, ModuleValue) else Unknown()


@methods_of(ACCELERATORS, "accumulate", "no_sync", "autocast", "profile")
@methods_of(FABRICS, "autocast")
def step_context(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """A context around a step. It does nothing to the structure of the model."""
    return Context("harmless")


@methods_of(FABRICS, "no_backward_sync")
def no_backward_sync(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """`no_sync()` of a model that Fabric shards, where `enabled` certainly holds.

    Where it holds at times only, the last backward of a step may synchronise the gradients.
    """
    module = run.settle(call.arg(0, "module") or Unknown())
    enabled = call.arg(1, "enabled") or Const(True)
    given = _argument_node(call, 1, "enabled")
    known = isinstance(module, ModuleValue) and communicates(run, module) and not call.open
    if not isinstance(module, ModuleValue) or not known or given is None:
        return Context("harmless")
    enabled = run.settle(enabled)
    verdict = truth_of(run, enabled, given, prefer=True)
    is_flag = bool(verdict.guards) and not isinstance(enabled, Condition)
    if verdict.outcome is not Truth.TRUE or is_flag:  # a caller may give a flag in each turn
        return Context("harmless")
    with run.under_guards(verdict.guards):
        run.emit(SyncSwitched, call.node, module=module.id, api=name, enabled=False)
    return Context("no_sync", module, certain=True)


def _argument_node(call: Call, position: int, keyword: str) -> cst.BaseExpression | None:
    """The expression of an argument; the call, if it is one, where it is not given by itself."""
    args = call.node.args if isinstance(call.node, cst.Call) else ()
    for place, arg in enumerate(args):
        named = arg.keyword.value if arg.keyword is not None else None
        if named == keyword or (named is None and not arg.star and place == position):
            return arg.value
    return call.node if isinstance(call.node, cst.Call) else None


@methods_of(ACCELERATORS, "backward")
@methods_of(FABRICS, "backward")
def run_backward(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """`accelerator.backward(loss)`: the loss stays that of the rank."""
    return backward(run, receiver, name, call)


@methods_of(ACCELERATORS, "clip_grad_norm_")
def clip(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """Clips as the sharding of the model needs it."""
    return TensorValue("norm")


@methods_of(FABRICS, "clip_gradients")
def clip_gradients(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """Clips as the sharding of the model needs it."""
    module = run.settle(call.arg(0, "module") or Unknown())
    if isinstance(module, ModuleValue):
        norm = call.arg(3, "max_norm")
        by_norm = norm is not None and not is_none(norm)
        run.emit(
            Clipped,
            call.node,
            api="framework",
            modules=(module.id,),
            by_norm=by_norm,
            max_norm=option(norm or Unknown()),
            collective=by_norm and communicates(run, module),
        )
    return TensorValue("norm")


@methods_of(ACCELERATORS, "print", "log", "get_state_dict", "save_state", "save_model")
@methods_of(FABRICS, "print", "log", "log_dict")
def read_model(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """A method that reads a model or writes it to disk; a sharded model needs all ranks."""
    if name in _GATHERING and _fsdp_plugin(run, receiver) is not None:
        run.emit(Collective, call.node, api=f"Accelerator.{name}", collective=True)
    return Unknown(origin=f"{receiver.origin}.{name}()")


@methods_of(FABRICS, "launch")
def launch(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """`fabric.launch(main, *args)` calls `main(fabric, *args)` on every rank."""
    target = run.settle(call.arg(0, "function") or Unknown())
    if not isinstance(target, Function | Bound | Partial):
        return call_unknown(run, Unknown(origin=f"{receiver.origin}.{name}"), call)
    named = {key: value for key, value in call.kwargs.items() if key != "function"}
    return run.call(target, Call(call.node, [receiver, *call.args[1:]], named, call.open))


@methods_of(FABRICS, "seed_everything")
def seed(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    seed_all(run, name, call, call.arg(0, "seed"))
    return Unknown()


@methods_of(FABRICS, "save", "load")
def save_or_load(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """Writes or reads a checkpoint of all ranks. To load changes the state that it gets."""
    if shards_by_strategy(run, receiver) or sharding_function(run, receiver) is not None:
        run.emit(Collective, call.node, api=f"Fabric.{name}", collective=True)
    if name == "save" or _load_in_place(run, call):
        return Unknown(origin=f"{receiver.origin}.{name}()")
    return call_unknown(run, Unknown(origin=f"{receiver.origin}.{name}"), call)


def _load_in_place(run: Run, call: Call) -> bool:
    """Read a checkpoint into a state that is known; whether it is.

    Models and optimizers keep their structure. The checkpoint replaces all other values.
    """
    state = run.settle(call.arg(1, "state") or Unknown())
    if not isinstance(state, Dict) or state.open or state.tensors or call.open:
        return False
    for key, value in state.items.items():
        held = run.settle(value)
        if isinstance(held, ModuleValue):
            meta_device.leave_meta(run, [held])
        elif not isinstance(held, OptimizerValue):
            state.items[key] = Unknown()
    return True


@methods_of(
    ACCELERATORS, "wait_for_everyone", "gather", "gather_for_metrics", "reduce",
    "pad_across_processes",
)  # fmt: skip
@methods_of(FABRICS, "barrier", "broadcast", "all_gather", "all_reduce")
def communicate(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """A collective of all ranks. Its result is the same kind of value on each rank."""
    owner = receiver.library.rpartition(".")[2]
    run.emit(Collective, call.node, api=f"{owner}.{name}", collective=True)
    value = run.settle(call.args[0]) if call.args else Unknown()
    return TensorValue("reduced") if isinstance(value, TensorValue) else Unknown()

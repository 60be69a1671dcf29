"""FSDP2: fully_shard and the methods of FSDPModule."""

from __future__ import annotations

from fsdplint.interpreter import gradient_writes, plain_modules
from fsdplint.interpreter.argument_values import is_none_by_assumption
from fsdplint.interpreter.decided_values import try_other_shardings
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.ignored_parameters import ignored_modules, note_ignored
from fsdplint.interpreter.imports import can_do_without
from fsdplint.interpreter.meshes import mesh_of
from fsdplint.interpreter.models.attribute_access import OPTIONAL_NO_SYNC
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.module_tree import communicates, sharding_inside
from fsdplint.interpreter.modules import as_module, assume_sharding
from fsdplint.interpreter.option_texts import bound, option
from fsdplint.interpreter.precisions import weights_in_param_dtype
from fsdplint.interpreter.refusals import note_scalars
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import TensorValue
from fsdplint.interpreter.turn_tests import predicate_of
from fsdplint.interpreter.unit_precisions import note_precision
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Const,
    Context,
    LibraryObject,
    Method,
    ModuleValue,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import (
    Clipped,
    Collective,
    Fsdp2Used,
    Gathered,
    MethodRegistered,
    PrecisionChosen,
    Sharded,
    Sharding,
    SyncSwitched,
)
from fsdplint.trace.torch_versions import ARGUMENTS, METHODS

FSDP = "torch.distributed.fsdp"

# Dataclasses, by the names of their fields in the order of their arguments.
_STATE_FIELDS = ("offload_to_cpu", "rank0_only")
_SHARDED_STATE_FIELDS = ("offload_to_cpu", "_use_dtensor")
_OFFLOADED = ("offload_to_cpu",)
CONFIGURATIONS: dict[str, tuple[str, ...] | None] = {
    f"{FSDP}.MixedPrecisionPolicy": (
        *("param_dtype", "reduce_dtype", "output_dtype", "cast_forward_inputs"),
    ),
    f"{FSDP}.CPUOffloadPolicy": ("pin_memory",),
    f"{FSDP}.OffloadPolicy": (),
    f"{FSDP}.MixedPrecision": (
        *("param_dtype", "reduce_dtype", "buffer_dtype", "keep_low_precision_grads"),
        *("cast_forward_inputs", "cast_root_forward_inputs", "_module_classes_to_ignore"),
    ),
    f"{FSDP}.CPUOffload": ("offload_params",),
    f"{FSDP}.FullStateDictConfig": _STATE_FIELDS,
    f"{FSDP}.ShardedStateDictConfig": _SHARDED_STATE_FIELDS,
    f"{FSDP}.LocalStateDictConfig": _OFFLOADED,
    f"{FSDP}.FullOptimStateDictConfig": _STATE_FIELDS,
    f"{FSDP}.ShardedOptimStateDictConfig": _SHARDED_STATE_FIELDS,
    f"{FSDP}.LocalOptimStateDictConfig": _OFFLOADED,
    f"{FSDP}.wrap.ModuleWrapPolicy": None,  # no dataclass
    f"{FSDP}.wrap.CustomPolicy": None,
    f"{FSDP}.DataParallelMeshDims": ("shard", "replicate"),
    "torch.distributed.checkpoint.state_dict.StateDictOptions": (
        *("full_state_dict", "cpu_offload", "ignore_frozen_params", "keep_submodule_prefixes"),
        *("strict", "broadcast_from_rank0", "flatten_optimizer_state_dict", "dsd_fqn_modifiers"),
    ),
}


@function(f"{FSDP}.fully_shard")
def fully_shard(run: Run, name: str, call: Call) -> Value:
    """`fully_shard(module, ...)` or, for one communication group, `fully_shard([a, b], ...)`."""
    target = run.settle(call.arg(0, "module") or Unknown())
    items = target.items if isinstance(target, Sequence) else [target]
    modules = [m for m in (as_module(run, item) for item in items) if m is not None]
    if not modules:
        return target
    for module in modules:
        module.sharded = True
    try_other_shardings(run, call)
    mesh = mesh_of(run, call.kwargs.get("mesh"))
    if "ignored_params" in call.kwargs:
        modules[0].attributes["*ignored"] = call.kwargs["ignored_params"]
    event = run.emit(
        Sharded,
        call.node,
        module=modules[0].id,
        group=tuple(m.id for m in modules) if isinstance(target, Sequence) else (),
        options=_options(run, call),
        positional=tuple(option(value) for value in call.args[1:]),
        mesh=mesh.id if mesh.is_whole else "",
        whole_mesh=mesh.id,
        dims=mesh.dims,
        frozen=all(module.all_frozen for module in modules),
        ignored=() if call.open else ignored_modules(run, call.kwargs),
        weights_in=weights_in_param_dtype(run, modules, call.kwargs.get("mp_policy")),
    )
    note_ignored(run, event, call.kwargs)
    note_precision(run, event, call.kwargs.get("mp_policy"))
    note_scalars(run, event, call)
    for key in call.kwargs:
        if key in ARGUMENTS:
            _emit_newer_api(run, f"fully_shard.{key}", modules[0], call)
    return modules[0] if not isinstance(target, Sequence) else target


def _options(run: Run, call: Call) -> dict[str, object]:
    """The options of `fully_shard`; "?" for one that is not known."""
    known = {
        key: "?" if is_none_by_assumption(run, value) else option(value)
        for key, value in call.kwargs.items()
        if key != "module"
    }
    return known | ({"**": "?"} if call.open else {})


@function(f"{FSDP}.register_fsdp_forward_method")
def register_method(run: Run, name: str, call: Call) -> Value:
    module = as_module(run, call.arg(0, "module"))
    what = constant(call.arg(1, "method_name"))
    if module is not None:
        # "*": an unknown name may be any
        run.emit(
            MethodRegistered,
            call.node,
            module=module.id,
            method=what if isinstance(what, str) else "*",
        )
    return Const(None)


@function(*CONFIGURATIONS)
def configuration_object(run: Run, name: str, call: Call) -> Value:
    """Configuration objects, whose arguments are read at their use."""
    args = {str(number): value for number, value in enumerate(call.args)} | call.kwargs
    if name.endswith(".MixedPrecisionPolicy") and not call.open:
        dtypes = [call.arg(0, "param_dtype"), call.arg(1, "reduce_dtype")]
        texts = [_dtype(value) for value in dtypes]
        run.emit(PrecisionChosen, call.node, param_dtype=texts[0], reduce_dtype=texts[1])
    return LibraryObject(name, args, call.open)


def replaced_configuration(run: Run, config: LibraryObject, call: Call) -> Value | None:
    """The copy of a configuration object with the keyword arguments of a call.

    None if it is not known which fields its positional arguments are.
    """
    fields = CONFIGURATIONS.get(config.name)
    positional = [name for name in config.args if name.isdecimal()]
    if fields is None or len(positional) > len(fields) or call.open:
        return None
    named = {
        fields[int(name)] if name.isdecimal() else name: value
        for name, value in config.args.items()
    }
    made = Call(call.node, [], {**named, **call.kwargs}, config.open)
    return configuration_object(run, config.name, made)


def _dtype(value: Value | None) -> str | None:
    if value is None or is_none(value):
        return None
    known = isinstance(value, Symbol) and value.name.startswith("torch.")
    return value.name if known and isinstance(value, Symbol) else "?"


# Methods ----------------------------------------------------------------------------------------


_SWITCHES = (
    "set_requires_gradient_sync", "set_is_last_backward", "set_requires_all_reduce",
    "set_reshard_after_forward", "set_reshard_after_backward", "set_gradient_divide_factor",
    "set_reduce_scatter_divide_factor",
)  # fmt: skip


@method("ModuleValue", *_SWITCHES)
def set_sync(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    plain_modules.note_method(run, receiver, name, call)
    given = call.values
    enabled = constant(given[0]) if given else None
    run.emit(
        SyncSwitched,
        call.node,
        module=receiver.id,
        api=name,
        enabled=enabled if isinstance(enabled, bool) else None,
        test=predicate_of(given[0]) if given and not isinstance(enabled, bool) else None,
    )
    if name in METHODS:
        _emit_newer_api(run, name, receiver, call)
    return Const(None)


@method("Unknown", "set_requires_gradient_sync", "set_is_last_backward",
        "set_requires_all_reduce", "set_reshard_after_backward")  # fmt: skip
def set_sync_of_unknown(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """A method that only the models of FSDP2 have."""
    module = as_module(run, receiver)
    if module is None:
        return Unknown()
    assume_sharding(run, module, Sharding.FSDP2)
    return set_sync(run, module, name, call)


@method("ModuleValue", *METHODS.keys() - {*_SWITCHES})
def newer_method(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    plain_modules.note_method(run, receiver, name, call)
    _emit_newer_api(run, name, receiver, call)
    return Unknown()


def _emit_newer_api(run: Run, api: str, module: ModuleValue, call: Call) -> None:
    """Record the use of an API that not every torch with FSDP2 has."""
    if sharding_inside(run, module) is Sharding.FSDP2:
        optional = can_do_without(run.source, call.node)
        run.emit(Fsdp2Used, call.node, api=api, module=module.id, optional=optional)


@method("ModuleValue", "unshard", "reshard")
def gather(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    plain_modules.note_method(run, receiver, name, call)
    sharded = sharding_inside(run, receiver) is not None
    if name == "unshard" and constant(call.arg(0, "async_op")) is True:
        run.emit(Collective, call.node, api=name, collective=sharded)
        return LibraryObject(UNSHARD_HANDLE, {"module": receiver})
    run.emit(
        Gathered,
        call.node,
        module=receiver.id,
        gathered=name == "unshard",
        collective=name == "unshard" and sharded,
    )
    return Unknown()


UNSHARD_HANDLE = "torch.distributed.fsdp.UnshardHandle"


@method("LibraryObject", "wait")
def wait(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    """`module.unshard(async_op=True).wait()`: from here on the parameters are whole."""
    module = receiver.get("module")
    if receiver.name != UNSHARD_HANDLE or not isinstance(module, ModuleValue):
        return call_unknown(run, Method(receiver, name), call)
    run.emit(Gathered, call.node, module=module.id, gathered=True)
    return Const(None)


@method("ModuleValue", "no_sync", OPTIONAL_NO_SYNC)
def no_sync(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """FSDP1's and DDP's context manager; FSDP2 has none."""
    run.emit(
        SyncSwitched,
        call.node,
        module=receiver.id,
        api="no_sync",
        enabled=False,
        optional=name == OPTIONAL_NO_SYNC,
    )
    return Context("no_sync", receiver, certain=True)


@method("ModuleValue", "clip_grad_norm_")
def clip_method(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    run.emit(
        Clipped,
        call.node,
        api="method",
        modules=(receiver.id,),
        max_norm=bound(run, call.arg(0, "max_norm")),
        without_gradients=gradient_writes.are_zero_in(run, [receiver]),
        again=gradient_writes.are_clipped(run, call.node),
        collective=communicates(run, receiver),
    )
    return TensorValue("norm", (receiver,))

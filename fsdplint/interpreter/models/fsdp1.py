"""FSDP1: FullyShardedDataParallel, its static methods and contexts."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.argument_values import is_flag
from fsdplint.interpreter.choices import guards_of
from fsdplint.interpreter.decided_values import try_other_shardings
from fsdplint.interpreter.flat_parameters import mixes_adapters, mixes_frozen
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.ignored_parameters import ignored_modules, note_ignored
from fsdplint.interpreter.meta_device import device_name
from fsdplint.interpreter.models.module_wrappers import wrap
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.models.wrap_policies import keeps_rest, not_classes, units_of
from fsdplint.interpreter.module_attributes import certainly_lacks
from fsdplint.interpreter.module_tree import sharding_inside
from fsdplint.interpreter.modules import (
    as_module,
    assume_sharding,
    new_module,
)
from fsdplint.interpreter.option_texts import option
from fsdplint.interpreter.precisions import casts_weights, weights_in_param_dtype
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ModulesOf
from fsdplint.interpreter.values import (
    Context,
    Dict,
    LibraryObject,
    Method,
    ModuleValue,
    OptimizerValue,
    Symbol,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import Fsdp1Used, Sharding, Wrapped
from fsdplint.trace.arguments import Arguments

FSDP1 = "torch.distributed.fsdp.FullyShardedDataParallel"
# The order of the constructor's parameters (torch 2.0 to 2.13).
PARAMETERS = (
    "module", "process_group", "sharding_strategy", "cpu_offload", "auto_wrap_policy",
    "backward_prefetch", "mixed_precision", "ignored_modules", "param_init_fn", "device_id",
    "sync_module_states", "forward_prefetch", "limit_all_gathers", "use_orig_params",
    "ignored_states", "device_mesh",
)  # fmt: skip
# The parameters whose default is not None.
_WITH_VALUE = {
    "backward_prefetch", "sync_module_states", "forward_prefetch", "limit_all_gathers",
    "use_orig_params",
}  # fmt: skip


@function(FSDP1)
def constructor(run: Run, name: str, call: Call) -> Value:
    # Its argument is a module even if it is unknown, and its result is a wrapper.
    module = as_module(run, call.arg(0, "module")) or new_module(
        run, call.node, "model", children_known=False
    )
    given = dict(zip(PARAMETERS, call.args, strict=False)) | call.kwargs
    given.pop("module", None)
    try_other_shardings(run, call)
    wrapper = wrap(run, module, "FullyShardedDataParallel", "fsdp1", call)
    wrapper.attributes["*options"] = LibraryObject(name, given, call.open)
    policy = given.get("auto_wrap_policy")
    # A call with other arguments raises TypeError: what it is meant to wrap is not known.
    unknown = call.open or not set(given) <= set(PARAMETERS)
    own: dict[str, dict[str, Value]] = {}
    outside: list[str] = []
    units = None if unknown else units_of(run, module, policy, call.node, own, outside)
    with run.under_guards(guards_of(run, given.get("sharding_strategy"))):
        event = run.emit(
            Wrapped,
            call.node,
            module=wrapper.id,
            inner=module.id,
            options={
                key: "bool" if key == "cpu_offload" and is_flag(run, value) else option(value)
                for key, value in given.items()
                if not _is_default(key, value)
            }
            | ({"**": "?"} if call.open else {}),
            units=tuple(unit.id for unit in units) if units is not None else None,
            outside=tuple(outside) if units is None else (),
            mixes=(units is not None and mixes_frozen(run, module, units, given))
            or (not call.open and mixes_adapters(run, module, given)),
            keeps_rest=not call.open and keeps_rest(run, given),
            mesh=_mesh(run, given.get("device_mesh")),
            not_classes=not_classes(run, policy),
            ignored=() if call.open else ignored_modules(run, given),
            weights_in=weights_in_param_dtype(run, [module], given.get("mixed_precision")),
            casts_weights=casts_weights(run, module, given.get("mixed_precision")),
            device=device_name(run, given["device_id"]) or "" if "device_id" in given else "",
            collective=True,
        )
    note_ignored(run, event, given)
    _describe_own(run, event, own, call)
    return wrapper


@function(
    *(
        f"{FSDP1}.{name}"
        for name in (
            "clip_grad_norm_", "forward", "load_state_dict", "named_parameters", "no_sync",
            "parameters", "state_dict", "zero_grad",
        )
    )
)  # fmt: skip
def method_of_class(run: Run, name: str, call: Call) -> Value:
    """`FullyShardedDataParallel.method(model, ...)` is `model.method(...)`."""
    model = as_module(run, call.args[0]) if call.args else None
    if model is None:
        return Unknown()
    rest = replace(call, args=call.args[1:])
    return run.call(Method(model, name.rpartition(".")[2]), rest)


def _is_default(name: str, value: Value) -> bool:
    """Whether an argument of the constructor is None, as it is by default."""
    return name in PARAMETERS and name not in _WITH_VALUE and is_none(value)


def _describe_own(run: Run, event: Wrapped, own: dict[str, dict[str, Value]], call: Call) -> None:
    """Describe the arguments of the units to which a CustomPolicy gives some of their own."""
    given = run.trace.arguments.get(event.index)
    if given is None or run.project.describe is None:
        return
    for unit, values in own.items():
        # The call of the constructor does not write these values.
        found = run.project.describe(Call(cst.Ellipsis(), [], values))
        every = Arguments({**given.given, **found.given}, given.complete)
        run.trace.unit_arguments[event.index, unit] = every


def _mesh(run: Run, value: Value | None) -> str | None:
    """The name in the trace of a mesh from `init_device_mesh`; None for other values."""
    value = run.settle(value) if value is not None else None
    name = constant(value.get("id")) if isinstance(value, LibraryObject) else None
    return name if isinstance(name, str) else None


def emit_use(run: Run, api: str, call: Call, *, collective: bool = False) -> ModuleValue | None:
    """Record the use of a static method, and return its first argument, a module."""
    return _emit_use(run, api, call, collective=collective)[0]


def _emit_use(
    run: Run, api: str, call: Call, *, collective: bool = False
) -> tuple[ModuleValue | None, Fsdp1Used]:
    """Record the use of a static method; its first argument, a module, and the event.

    On an FSDP2 module the method does nothing, so it does not communicate.
    """
    module = as_module(run, call.arg(0, "module") or call.arg(0, "model"))
    if module is not None and assume_sharding(run, module, Sharding.FSDP1):
        module.may_be_plain = True
    if module is not None and sharding_inside(run, module) is Sharding.FSDP2:
        collective = False
    event = run.emit(
        Fsdp1Used,
        call.node,
        api=api,
        module=module.id if module is not None else None,
        instead_of_model=instead_of_model(run, call),
        collective=collective,
    )
    return module, event


def instead_of_model(run: Run, call: Call) -> str:
    """What a method certainly gets as its first argument, in words; empty for a model."""
    if not call.args:
        return ""
    given, *others = (run.settle(value) for value in call.args)
    if isinstance(given, OptimizerValue):
        return "an optimizer"
    shifted = bool(others) and isinstance(others[0], ModuleValue)
    return "a state" if shifted and not isinstance(given, ModuleValue) else ""


@function(f"{FSDP1}.state_dict_type")
def state_dict_type(run: Run, name: str, call: Call) -> Value:
    module = emit_use(run, "state_dict_type", call)
    return Context("state_dict_type", module, _types(call))


@function(f"{FSDP1}.set_state_dict_type")
def set_state_dict_type(run: Run, name: str, call: Call) -> Value:
    module = emit_use(run, "set_state_dict_type", call)
    if module is not None:
        module.attributes["*state_dict_type"] = Context("state_dict_type", module, _types(call))
    return Unknown()


def _types(call: Call) -> dict[str, Value]:
    names = ("state_dict_type", "state_dict_config", "optim_state_dict_config")
    values = {name: call.arg(number, name) for number, name in enumerate(names, 1)}
    return {name: value for name, value in values.items() if value is not None}


# The parameters of `summon_full_params` after the module.
_SUMMON_OPTIONS = ("recurse", "writeback", "rank0_only", "offload_to_cpu", "with_grads")


@function(f"{FSDP1}.summon_full_params")
def summon(run: Run, name: str, call: Call) -> Value:
    module, event = _emit_use(run, "summon_full_params", call, collective=True)
    given = {name: call.arg(number, name) for number, name in enumerate(_SUMMON_OPTIONS, 1)}
    details = {name: value for name, value in given.items() if value is not None}
    if call.open:
        details["**"] = Unknown()
    return Context("summon_full_params", module, details, event.index, certain=True)


@method("fsdp1", "summon_full_params", "state_dict_type", "set_state_dict_type", "optim_state_dict",
        "optim_state_dict_to_load", "fsdp_modules", "full_optim_state_dict",
        "scatter_full_optim_state_dict", "shard_full_optim_state_dict",
        "sharded_optim_state_dict")  # fmt: skip
def static_by_instance(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """A static method called through the wrapped model."""
    return run.call(Symbol(f"{FSDP1}.{name}"), call)


@function(f"{FSDP1}.fsdp_modules")
def fsdp_modules(run: Run, name: str, call: Call) -> Value:
    module = emit_use(run, "fsdp_modules", call)
    return ModulesOf(module, "modules") if module is not None else Unknown()


@function(f"{FSDP1}.get_state_dict_type")
def static_query(run: Run, name: str, call: Call) -> Value:
    emit_use(run, name.rpartition(".")[2], call)
    return Unknown()


@function(f"{FSDP1}.rekey_optim_state_dict")
def rekey(run: Run, name: str, call: Call) -> Value:
    """The same state with other keys, in a dict of its own."""
    emit_use(run, "rekey_optim_state_dict", call)
    state = call.arg(0, "optim_state_dict") or Unknown()
    return Dict({"state": Dict(tensors={"name": state}), "param_groups": Unknown()})


@method("ModuleValue", "summon_full_params")
def summon_of_fsdp2(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """A method of FSDP1 on a module without a wrapper of FSDP1."""
    fsdp2 = sharding_inside(run, receiver) is Sharding.FSDP2
    if fsdp2 and certainly_lacks(run, receiver, name):
        run.emit(Fsdp1Used, call.node, api=name, module=receiver.id)
    return Context("summon_full_params", receiver)


@method("fsdp1", "register_comm_hook", "check_is_root", "apply", "flatten_sharded_optim_state_dict")
def fsdp1_method(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    run.emit(Fsdp1Used, call.node, api=name, module=receiver.id, collective=name == "apply")
    return Unknown()


@function("torch.distributed.fsdp.wrap.enable_wrap")
def enable_wrap(run: Run, name: str, call: Call) -> Value:
    run.emit(Fsdp1Used, call.node, api="enable_wrap", module=None)
    details = dict(call.kwargs)
    if call.open:
        details["**"] = Unknown()
    return Context("enable_wrap", None, details)


@function("torch.distributed.fsdp.wrap.wrap")
def wrap_in_block(run: Run, name: str, call: Call) -> Value:
    """`FSDP(module, ...)` with the arguments of the `enable_wrap` block that it runs in."""
    module = as_module(run, call.arg(0, "module"))
    for context in reversed(run.contexts):
        if isinstance(context, Context) and context.kind == "enable_wrap":
            given = context.details | call.kwargs
            wrapper = run.settle(given.pop("wrapper_cls", Unknown()))
            unseen = given.pop("**", None) is not None or call.open
            if module is not None and isinstance(wrapper, Symbol) and wrapper.name == FSDP1:
                return run.call(wrapper, replace(call, kwargs=given, open=unseen))
            break
    run.emit(Fsdp1Used, call.node, api="wrap", module=module.id if module is not None else None)
    return module if module is not None else Unknown()

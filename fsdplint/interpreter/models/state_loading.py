"""Loading of state dicts into modules and optimizers."""

from __future__ import annotations

from fsdplint.interpreter import meta_device, state_refusals
from fsdplint.interpreter.escape import modules_in
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.checkpoint import parameter_layout
from fsdplint.interpreter.models.fsdp1 import FSDP1, instead_of_model
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.models.state_dicts import (
    STATE,
    current_state_dict_type,
    fsdp1_type,
    layout_of,
    state_dict_option,
)
from fsdplint.interpreter.module_tree import sharding_inside, sharding_of_state
from fsdplint.interpreter.modules import as_module
from fsdplint.interpreter.one_rank_dicts import has_entries_on_one_rank
from fsdplint.interpreter.optimizers import lose_optimizer
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf, StateValue, note_result_use
from fsdplint.interpreter.values import (
    Const,
    Dict,
    ModuleValue,
    OptimizerValue,
    Unknown,
    Value,
    constant,
)
from fsdplint.syntax.unused_results import is_result_unused
from fsdplint.trace import (
    Fsdp1Used,
    Layout,
    Sharding,
    StateLoaded,
    TensorsMixed,
)


@function(
    f"{FSDP1}.optim_state_dict_to_load",
    f"{FSDP1}.scatter_full_optim_state_dict",
    f"{FSDP1}.shard_full_optim_state_dict",
    f"{FSDP1}.flatten_sharded_optim_state_dict",
)
def fsdp1_optimizer_load(run: Run, name: str, call: Call) -> Value:
    api = name.rpartition(".")[2]
    # the order of the arguments has changed: (model, optim, osd); before 2.2 (osd, model, optim)
    modules = [m for v in call.values for m in modules_in(run, v)]
    run.emit(
        Fsdp1Used,
        call.node,
        api=api,
        module=modules[0].id if modules else None,
        instead_of_model=instead_of_model(run, call) if api == "optim_state_dict_to_load" else "",
        collective=_communicates(run, api),
        dropped=_is_dropped(run, call),
    )
    return StateValue(run.new_id("state"), Layout.LOCAL, None, f"FSDP.{api}")


def _is_dropped(run: Run, call: Call) -> bool:
    """Whether nothing gets the state that a call prepares, not even the optimizer by itself."""
    directly = call.arg(4, "load_directly")
    if call.open or (directly is not None and constant(directly) is not False):
        return False
    return is_result_unused(run.source, call.node)


def _communicates(run: Run, api: str) -> bool:
    """Whether this function, which prepares an optimizer state, certainly communicates.

    Each rank slices full tensors without communication. Only the state of rank 0 is broadcast, and
    only sharded tensors are gathered.
    """
    if api != "optim_state_dict_to_load":
        return api != "shard_full_optim_state_dict"
    setting = current_state_dict_type(run)
    if setting is None:
        return False
    layout, rank0 = layout_of(setting, "optim_state_dict_config")
    if layout is not Layout.FULL:
        return layout is not Layout.UNKNOWN
    return rank0


@method("ModuleValue", "load_state_dict")
@method("OptimizerValue", "load_state_dict")
def load_state(run: Run, receiver: ModuleValue | OptimizerValue, name: str, call: Call) -> Value:
    state = run.settle(call.arg(0, "state_dict") or Unknown())
    note_result_use(state)
    known = state if isinstance(state, StateValue) else None
    if isinstance(receiver, ModuleValue):
        meta_device.note_load(run, receiver, state, call)
        if _flag(call, 2, "assign", False) is False:
            _note_loaded_shards(run, receiver, state, call)
    run.emit(
        StateLoaded,
        call.node,
        into=receiver.id,
        state=known.id if known is not None else None,
        layout=known.layout if known is not None else Layout.UNKNOWN,
        api="load_state_dict",
        collective=isinstance(receiver, ModuleValue) and _gathers_to_load(run, receiver),
        assign=_flag(call, 2, "assign", False) if isinstance(receiver, ModuleValue) else None,
        strict=_flag(call, 1, "strict", True) if isinstance(receiver, ModuleValue) else None,
        of_itself=_is_of_itself(run, receiver, known),
        shares=_shared_with(run, receiver, known, call),
    )
    return Unknown()


def _is_of_itself(run: Run, into: Value, state: StateValue | None) -> bool:
    """Whether a module gets a state that has its own parameters, which the program did not edit."""
    if not isinstance(into, ModuleValue) or state is None or not isinstance(state.of, ModuleValue):
        return False
    same = run.trace.unwrap(state.of.id) == run.trace.unwrap(into.id)
    return state.itself and same and not state.view and state.id not in run.edited_states


def _shared_with(run: Run, into: Value, state: StateValue | None, call: Call) -> str | None:
    """Another module whose parameters a module then has, as `assign=True` puts in the tensors."""
    if not isinstance(into, ModuleValue) or state is None or not isinstance(state.of, ModuleValue):
        return None
    own = state.itself and not state.view and state.id not in run.edited_states
    other = run.trace.unwrap(state.of.id) != run.trace.unwrap(into.id)
    return state.of.id if own and other and _flag(call, 2, "assign", False) is True else None


def _note_loaded_shards(run: Run, module: ModuleValue, state: Value, call: Call) -> None:
    """Record that a module that nothing shards gets the sharded parameters in a dict."""
    if not isinstance(state, Dict) or state.items or sharding_inside(run, module) is not None:
        return
    held = [run.settle(value) for value in state.tensors.values()]
    found = [value for value in held if isinstance(value, ParametersOf) and value.element]
    if found and all(parameter_layout(run, one) is Layout.SHARDED for one in found):
        run.emit(
            TensorsMixed,
            call.node,
            api="load_state_dict",
            plain_modules=(module.id,),
            sharded_modules=tuple(one.id for value in found for one in value.modules),
        )


def _flag(call: Call, position: int, name: str, default: bool) -> bool | None:
    """An argument of `load_state_dict()` of a module; None if it is not known."""
    value = call.arg(position, name)
    if value is None:
        return None if call.open else default
    flag = constant(value)
    return flag if isinstance(flag, bool) else None


def _gathers_to_load(run: Run, module: ModuleValue) -> bool:
    """Whether `load_state_dict()` certainly communicates.

    FSDP1 gathers the parameters first, except for a local state, which it copies into its shards.
    """
    if sharding_inside(run, module) is not Sharding.FSDP1:
        return False
    layout, _ = fsdp1_type(run, module)
    return layout in {Layout.FULL, Layout.SHARDED}


@function(f"{STATE}._init_optim_state")
def init_optimizer_state(run: Run, name: str, call: Call) -> Value:
    for value in call.values:
        lose_optimizer(run, value)
    return Const(None)


@function(f"{STATE}.set_model_state_dict", f"{STATE}.set_optimizer_state_dict",
          f"{STATE}.set_state_dict")  # fmt: skip
def set_state(run: Run, name: str, call: Call) -> Value:
    api = name.rpartition(".")[2]
    module = as_module(run, call.arg(0, "model"))
    meta_device.leave_meta(run, [module] if module is not None else [], keeps_dtype=True)
    state_refusals.note_call(run, call, api, module)
    optimizer = run.settle(call.arg(1, "optimizers") or Unknown())
    of: Value | None = module
    position, keyword = 1, "model_state_dict"
    if api == "set_optimizer_state_dict":
        of, position, keyword = optimizer, 2, "optim_state_dict"
    value = run.settle(call.arg(position, keyword) or Unknown())
    if not isinstance(of, ModuleValue | OptimizerValue):
        return Unknown()
    known = value if isinstance(value, StateValue) else None
    run.emit(
        StateLoaded,
        call.node,
        into=of.id,
        state=known.id if known is not None else None,
        layout=known.layout if known is not None else Layout.UNKNOWN,
        api=api,
        full=None if call.open else state_dict_option(call, "full_state_dict"),
        broadcast=None if call.open else state_dict_option(call, "broadcast_from_rank0"),
        of_itself=_is_of_itself(run, of, known),
        one_rank=has_entries_on_one_rank(value),
        collective=module is not None and _set_communicates(run, call, module, of),
    )
    return Unknown()


def _set_communicates(
    run: Run, call: Call, module: ModuleValue, of: ModuleValue | OptimizerValue
) -> bool:
    """Whether a function that sets a state certainly communicates.

    FSDP2 scatters full tensors and copies shards locally. FSDP1 gathers; but if every rank has the
    full tensors of an optimizer state, each slices them without communication.
    """
    sharding, full = sharding_of_state(run, module), state_dict_option(call, "full_state_dict")
    if sharding is not Sharding.FSDP1:
        return sharding is Sharding.FSDP2 and full is True
    if isinstance(of, ModuleValue) or full is False:
        return True
    from_rank0 = state_dict_option(call, "cpu_offload") or state_dict_option(
        call, "broadcast_from_rank0"
    )
    return full is True and from_rank0 is True

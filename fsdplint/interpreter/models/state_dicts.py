"""State dicts of modules and optimizers, and their tensors."""

from __future__ import annotations

from dataclasses import replace

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.fsdp1 import FSDP1, emit_use
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.module_tree import (
    has_whole_parameters,
    sharding_of_state,
)
from fsdplint.interpreter.modules import as_module
from fsdplint.interpreter.optimizers import optimizer_layout, take_parameters
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.state_edits import note_entry_read
from fsdplint.interpreter.torch_values import (
    LOCAL_PART,
    ParametersOf,
    StateValue,
    TensorValue,
)
from fsdplint.interpreter.values import (
    Const,
    Context,
    LibraryObject,
    ModuleValue,
    OptimizerValue,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
    gathers,
)
from fsdplint.trace import (
    Collective,
    Layout,
    Sharding,
    StateTaken,
)
from fsdplint.trace.queries.wrappers import holds_units, unit_around

DCP = "torch.distributed.checkpoint"
STATE = f"{DCP}.state_dict"
TYPES = {
    "FULL_STATE_DICT": Layout.FULL,
    "SHARDED_STATE_DICT": Layout.SHARDED,
    "LOCAL_STATE_DICT": Layout.LOCAL,
}


def take_state(
    run: Run,
    call: Call,
    of: ModuleValue | OptimizerValue,
    layout: Layout,
    api: str,
    *,
    collective: bool,
    rank0_only: bool = False,
    itself: bool = False,
    on_cpu: bool = False,
) -> StateValue:
    """Record that a state dict is made, and return it.

    itself: whether it certainly has the parameters themselves, and no copies.
    on_cpu: whether its tensors are certainly on the CPU.
    """
    state = StateValue(run.new_id("state"), layout, of, api, rank0_only, itself=itself)
    run.emit(
        StateTaken,
        call.node,
        state=state.id,
        of=of.id,
        layout=layout,
        api=api,
        collective=collective,
        rank0_only=rank0_only,
        on_cpu=on_cpu,
    )
    return state


def fsdp1_type(
    run: Run, module: ModuleValue, config: str = "state_dict_config"
) -> tuple[Layout, bool]:
    """The layout of `state_dict()` of FSDP1 here, and whether only rank 0 gets its content."""
    setting = current_state_dict_type(run, module)
    return layout_of(setting, config) if setting is not None else (Layout.FULL, False)


def current_state_dict_type(run: Run, module: ModuleValue | None = None) -> Context | None:
    """The active `state_dict_type` of FSDP1; None if the program sets none.

    module: that of the state; a type that is chosen for another model does not matter to it.
    """
    for context in reversed(run.contexts):
        if isinstance(context, Context) and context.kind == "state_dict_type":
            if _is_about(run, context, module):
                return context
    for value in run.objects.values():
        if isinstance(value, ModuleValue) and value.wrapper == "fsdp1":
            setting = value.attributes.get("*state_dict_type")
            if isinstance(setting, Context) and _is_about(run, setting, module):
                return setting
    return None


def _is_about(run: Run, context: Context, module: ModuleValue | None) -> bool:
    """Whether a chosen type of states is that of a module, as far as both are known."""
    if module is None or not isinstance(context.module, ModuleValue):
        return True
    one, other = context.module.id, module.id
    return other in run.trace.submodules(one) or one in run.trace.submodules(other)


def layout_of(context: Context, config: str = "state_dict_config") -> tuple[Layout, bool]:
    """The layout that a type of states gives, and whether only rank 0 gets the content.

    config: the argument that says so. That of optimizer states is another one.
    """
    kind = context.details.get("state_dict_type")
    name = kind.name.rpartition(".")[2] if isinstance(kind, Symbol) else ""
    return TYPES.get(name, Layout.UNKNOWN), is_for_rank0(context.details.get(config))


def is_for_rank0(config: Value | None) -> bool:
    """Whether a configuration of states certainly gives the other ranks nothing."""
    return isinstance(config, LibraryObject) and constant(config.get("rank0_only", "1")) is True


def fsdp2_layout(run: Run, module: ModuleValue) -> Layout:
    """The layout of `state_dict()` of a module that FSDP2 shards."""
    return Layout.FULL if has_whole_parameters(run, module) else Layout.SHARDED


def gathered_wrapper(run: Run, module: ModuleValue) -> ModuleValue | None:
    """FSDP1's wrapper of a module in a block that gathers its parameters; None elsewhere.

    States of both have the same names and whole tensors there.
    """
    if not gathers(run.contexts):
        return None
    for value in run.objects.values():
        if isinstance(value, ModuleValue) and value.wrapper == "fsdp1" and value.inner is module:
            return value
    return None


@method("ModuleValue", "state_dict")
def module_state(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    receiver = gathered_wrapper(run, receiver) or receiver
    sharding = sharding_of_state(run, receiver)
    if sharding is None and holds_units(run.trace, receiver.id):
        sharding = Sharding.FSDP1
    if not gathers(run.contexts) and unit_around(run.trace, receiver.id) is not None:
        # Only the wrapper gathers the parameters of its unit.
        collective = sharding is Sharding.FSDP1
        return take_state(run, call, receiver, Layout.LOCAL, "state_dict", collective=collective)
    if sharding is Sharding.FSDP1:
        layout, rank0 = fsdp1_type(run, receiver)
        # Local states too: the ranks exchange their shards of a flat parameter.
        collective = not gathers(run.contexts)
        return take_state(
            run, call, receiver, layout, "state_dict", collective=collective, rank0_only=rank0
        )
    layout = fsdp2_layout(run, receiver) if sharding is Sharding.FSDP2 else Layout.PLAIN
    if receiver.framework:
        layout = Layout.SHARDED if receiver.framework == "fsdp2" else Layout.UNKNOWN
    collective = receiver.framework == "fsdp1" and not gathers(run.contexts)
    itself = layout is Layout.SHARDED and not (call.args or call.kwargs or call.open)
    return take_state(
        run, call, receiver, layout, "state_dict", collective=collective, itself=itself
    )


@method("OptimizerValue", "state_dict")
def optimizer_state(run: Run, receiver: OptimizerValue, name: str, call: Call) -> Value:
    layout = optimizer_layout(run, receiver)
    return take_state(run, call, receiver, layout, "state_dict", collective=False)


def state_dict_option(call: Call, name: str) -> bool | None:
    """A flag of a StateDictOptions argument; None if unknown."""
    value = call.kwargs.get("options")
    if value is None or (isinstance(value, Const) and value.value is None):
        return False
    if not isinstance(value, LibraryObject) or value.open:
        return None
    flag = value.args.get(name)
    return False if flag is None else constant(flag)


def _get_state(run: Run, call: Call, of: Value | None, api: str) -> Value:
    if not isinstance(of, ModuleValue | OptimizerValue):
        return Unknown()
    full, offload = (
        state_dict_option(call, "full_state_dict"),
        state_dict_option(call, "cpu_offload"),
    )
    modules = (of,) if isinstance(of, ModuleValue) else of.modules
    kinds = {sharding_of_state(run, module) for module in modules} - {None}
    if full is None:
        layout = Layout.UNKNOWN
    elif full:
        layout = Layout.FULL
    else:
        layout = Layout.SHARDED if kinds else Layout.PLAIN
    return take_state(
        run,
        call,
        of,
        layout,
        api,
        collective=Sharding.FSDP1 in kinds or (Sharding.FSDP2 in kinds and full is True),
        rank0_only=full is True and offload is True,
        itself=layout is Layout.SHARDED and offload is False and kinds == {Sharding.FSDP2},
        on_cpu=offload is True,
    )


@function(f"{STATE}.get_model_state_dict")
def get_model_state(run: Run, name: str, call: Call) -> Value:
    return _get_state(run, call, as_module(run, call.arg(0, "model")), "get_model_state_dict")


@function(f"{STATE}.get_optimizer_state_dict")
def get_optimizer_state(run: Run, name: str, call: Call) -> Value:
    as_module(run, call.arg(0, "model"))
    optimizer = call.arg(1, "optimizers")
    of = run.settle(optimizer) if optimizer is not None else None
    return _get_state(run, call, of, "get_optimizer_state_dict")


@function(f"{STATE}.get_state_dict")
def get_state(run: Run, name: str, call: Call) -> Value:
    model = _get_state(run, call, as_module(run, call.arg(0, "model")), "get_state_dict")
    optimizer = run.settle(call.arg(1, "optimizers") or Unknown())
    other = Unknown()
    if isinstance(optimizer, OptimizerValue) and isinstance(model, StateValue):
        other = _get_state(run, call, optimizer, "get_state_dict")  # type: ignore[assignment]
    return Sequence([model, other], "tuple")


@function(f"{FSDP1}.optim_state_dict", f"{FSDP1}.full_optim_state_dict",
          f"{FSDP1}.sharded_optim_state_dict")  # fmt: skip
def fsdp1_optimizer_state(run: Run, name: str, call: Call) -> Value:
    api = name.rpartition(".")[2]
    module = emit_use(run, api, call)
    optimizer = run.settle(call.arg(1, "optim") or Unknown())
    if module is None:
        return Unknown()
    layout, rank0 = fsdp1_type(run, module, "optim_state_dict_config")
    if api != "optim_state_dict":
        layout = Layout.FULL if api.startswith("full") else Layout.SHARDED
        rank0 = api.startswith("full") and _is_for_rank0(call)
    of = optimizer if isinstance(optimizer, OptimizerValue) else module
    return take_state(run, call, of, layout, f"FSDP.{api}", collective=True, rank0_only=rank0)


def _is_for_rank0(call: Call) -> bool:
    """Whether `full_optim_state_dict` certainly gives the other ranks nothing, as by default."""
    given = call.arg(3, "rank0_only")
    return given is None or constant(given) is True


@method("StateValue", "items", "values", "keys")
def view_of_state(run: Run, receiver: StateValue, name: str, call: Call) -> Value:
    return replace(receiver, view=name)


@method("StateValue", "get", "pop")
def entry_of_state(run: Run, receiver: StateValue, name: str, call: Call) -> Value:
    key = run.settle(call.args[0]) if call.args else Unknown()
    if name == "pop" and len(call.values) == 1 and not call.open:
        note_entry_read(run, receiver, key, call.node)
    return receiver.entry(key)


@method("StateValue", "to_local", "redistribute")
def local_tensor(run: Run, receiver: StateValue, name: str, call: Call) -> Value:
    """The local part of a DTensor, or the DTensor with other placements."""
    if receiver.layout is Layout.SHARDED and name == "to_local":
        return receiver.as_layout(Layout.LOCAL, "local")
    return receiver.as_layout(Layout.UNKNOWN, "other")


@method("ParametersOf", "to_local", "redistribute")
def local_parameter(run: Run, receiver: ParametersOf, name: str, call: Call) -> Value:
    if name != "to_local":
        return TensorValue("derived", receiver.modules)
    local = TensorValue(LOCAL_PART, receiver.modules)
    run.local_parts[local] = take_parameters(run, receiver, element=True)
    return local


@method("StateValue", "full_tensor")
def full_tensor(run: Run, receiver: StateValue, name: str, call: Call) -> Value:
    if receiver.layout is Layout.SHARDED:
        run.emit(Collective, call.node, api="full_tensor", collective=True)
    # The gathered tensors form a new state.
    return receiver.as_layout(Layout.FULL, "whole")

"""State dicts, torch.save and torch.load, and torch.distributed.checkpoint."""

from __future__ import annotations

from dataclasses import replace

from fsdplint.interpreter import meta_device
from fsdplint.interpreter.escape import modules_in
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.fsdp1 import FSDP1, _used
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.models.tensors import surely_sharded
from fsdplint.interpreter.module_tree import sharding_inside, sharding_of_parameters
from fsdplint.interpreter.modules import as_module
from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Const,
    Context,
    Dict,
    Made,
    ModuleValue,
    OptimizerValue,
    ParametersOf,
    Sequence,
    ShardTensor,
    StateValue,
    Symbol,
    TensorValue,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace import (
    Collective,
    Fsdp1Used,
    Layout,
    Loaded,
    Saved,
    Sharding,
    StateLoaded,
    StateTaken,
)

DCP = "torch.distributed.checkpoint"
STATE = f"{DCP}.state_dict"
TYPES = {
    "FULL_STATE_DICT": Layout.FULL,
    "SHARDED_STATE_DICT": Layout.SHARDED,
    "LOCAL_STATE_DICT": Layout.LOCAL,
}


def take(
    run: Run,
    call: Call,
    of: ModuleValue | OptimizerValue,
    layout: Layout,
    api: str,
    *,
    collective: bool,
    rank0_only: bool = False,
) -> StateValue:
    """A state dict is made of a module or an optimizer."""
    state = StateValue(run.new_id("state"), layout, of, api, rank0_only)
    run.emit(
        StateTaken,
        call.node,
        state=state.id,
        of=of.id,
        layout=layout,
        api=api,
        collective=collective,
        rank0_only=rank0_only,
    )
    return state


def fsdp1_type(run: Run, module: ModuleValue) -> tuple[Layout, bool]:
    """The layout of FSDP1's `state_dict()` here, and whether rank 0 alone gets its content."""
    setting = _state_dict_type(run)
    return _layout_of(setting) if setting is not None else (Layout.FULL, False)


def _state_dict_type(run: Run) -> Context | None:
    """The `state_dict_type` of FSDP1 that holds here, None where the program sets none."""
    open_contexts = [
        c for c in run.contexts if isinstance(c, Context) and c.kind == "state_dict_type"
    ]
    if open_contexts:
        return open_contexts[-1]
    for value in run.objects.values():
        if isinstance(value, ModuleValue) and value.wrapper == "fsdp1":
            setting = value.attributes.get("*state_dict_type")
            if isinstance(setting, Context):
                return setting
    return None


def _layout_of(context: Context) -> tuple[Layout, bool]:
    kind = context.details.get("state_dict_type")
    name = kind.name.rpartition(".")[2] if isinstance(kind, Symbol) else ""
    config = context.details.get("state_dict_config")
    rank0 = isinstance(config, Made) and constant(config.get("rank0_only", "1")) is True
    return TYPES.get(name, Layout.UNKNOWN), rank0


# Taking -----------------------------------------------------------------------------------------


@method("ModuleValue", "state_dict")
def module_state(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    sharding = sharding_inside(run, receiver)
    if sharding is Sharding.FSDP1:
        layout, rank0 = fsdp1_type(run, receiver)
        # Local states too: the ranks exchange what each one holds of a flat parameter.
        collective = not _summoned(run)
        return take(
            run, call, receiver, layout, "state_dict", collective=collective, rank0_only=rank0
        )
    layout = Layout.SHARDED if sharding is Sharding.FSDP2 else Layout.PLAIN
    return take(run, call, receiver, layout, "state_dict", collective=False)


def _summoned(run: Run) -> bool:
    """Whether FSDP1 may have gathered everything already: a state is taken alone then."""
    return any(isinstance(c, Context) and c.kind == "summon_full_params" for c in run.contexts)


@method("OptimizerValue", "state_dict")
def optimizer_state(run: Run, receiver: OptimizerValue, name: str, call: Call) -> Value:
    layout = optimizer_layout(run, receiver)
    return take(run, call, receiver, layout, "state_dict", collective=False)


def optimizer_layout(run: Run, optimizer: OptimizerValue) -> Layout:
    kinds = {sharding_inside(run, module) for module in optimizer.modules}
    if Sharding.FSDP2 in kinds:
        return Layout.SHARDED
    if Sharding.FSDP1 in kinds:
        return Layout.LOCAL
    return Layout.PLAIN if optimizer.modules else Layout.UNKNOWN


def _option(call: Call, name: str) -> bool | None:
    """A flag of a StateDictOptions argument; None where unknown."""
    value = call.kwargs.get("options")
    if value is None or (isinstance(value, Const) and value.value is None):
        return False
    if not isinstance(value, Made) or value.open:
        return None
    flag = value.args.get(name)
    return False if flag is None else constant(flag)


def _get(run: Run, call: Call, of: Value | None, api: str) -> Value:
    if not isinstance(of, ModuleValue | OptimizerValue):
        return Unknown()
    full, offload = _option(call, "full_state_dict"), _option(call, "cpu_offload")
    modules = (of,) if isinstance(of, ModuleValue) else of.modules
    kinds = {sharding_inside(run, module) for module in modules} - {None}
    if full is None:
        layout = Layout.UNKNOWN
    elif full:
        layout = Layout.FULL
    else:
        layout = Layout.SHARDED if kinds else Layout.PLAIN
    return take(
        run,
        call,
        of,
        layout,
        api,
        collective=Sharding.FSDP1 in kinds or (Sharding.FSDP2 in kinds and full is True),
        rank0_only=full is True and offload is True,
    )


@function(f"{STATE}.get_model_state_dict")
def get_model_state(run: Run, name: str, call: Call) -> Value:
    return _get(run, call, as_module(run, call.arg(0, "model")), "get_model_state_dict")


@function(f"{STATE}.get_optimizer_state_dict")
def get_optimizer_state(run: Run, name: str, call: Call) -> Value:
    as_module(run, call.arg(0, "model"))
    optimizer = call.arg(1, "optimizers")
    of = run.settle(optimizer) if optimizer is not None else None
    return _get(run, call, of, "get_optimizer_state_dict")


@function(f"{STATE}.get_state_dict")
def get_state(run: Run, name: str, call: Call) -> Value:
    model = _get(run, call, as_module(run, call.arg(0, "model")), "get_state_dict")
    optimizer = run.settle(call.arg(1, "optimizers") or Unknown())
    other = Unknown()
    if isinstance(optimizer, OptimizerValue) and isinstance(model, StateValue):
        other = _get(run, call, optimizer, "get_state_dict")  # type: ignore[assignment]
    return Sequence([model, other], "tuple")


@function(f"{FSDP1}.optim_state_dict", f"{FSDP1}.full_optim_state_dict",
          f"{FSDP1}.sharded_optim_state_dict")  # fmt: skip
def fsdp1_optimizer_state(run: Run, name: str, call: Call) -> Value:
    api = name.rpartition(".")[2]
    module = _used(run, api, call)
    optimizer = run.settle(call.arg(1, "optim") or Unknown())
    if module is None:
        return Unknown()
    layout, rank0 = fsdp1_type(run, module)
    if api != "optim_state_dict":
        layout = Layout.FULL if api.startswith("full") else Layout.SHARDED
        rank0 = api.startswith("full")
    of = optimizer if isinstance(optimizer, OptimizerValue) else module
    return take(run, call, of, layout, f"FSDP.{api}", collective=True, rank0_only=rank0)


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
        collective=_communicates(run, api),
    )
    return StateValue(run.new_id("state"), Layout.LOCAL, None, f"FSDP.{api}")


def _communicates(run: Run, api: str) -> bool:
    """Whether this function, which makes an optimizer's state loadable, surely communicates.

    A rank cuts its part out of whole tensors by itself. Only the state of rank 0 is broadcast, and
    only sharded tensors are gathered.
    """
    if api != "optim_state_dict_to_load":
        return api != "shard_full_optim_state_dict"
    setting = _state_dict_type(run)
    if setting is None:
        return False
    layout, _ = _layout_of(setting)
    if layout is not Layout.FULL:
        return layout is not Layout.UNKNOWN
    config = setting.details.get("optim_state_dict_config")
    return isinstance(config, Made) and constant(config.get("rank0_only", "1")) is True


# Loading ----------------------------------------------------------------------------------------


@method("ModuleValue", "load_state_dict")
@method("OptimizerValue", "load_state_dict")
def load_state(run: Run, receiver: ModuleValue | OptimizerValue, name: str, call: Call) -> Value:
    state = run.settle(call.arg(0, "state_dict") or Unknown())
    known = state if isinstance(state, StateValue) else None
    if isinstance(receiver, ModuleValue):
        meta_device.loaded(run, receiver, state, call)
    run.emit(
        StateLoaded,
        call.node,
        into=receiver.id,
        state=known.id if known is not None else None,
        layout=known.layout if known is not None else Layout.UNKNOWN,
        api="load_state_dict",
        collective=isinstance(receiver, ModuleValue) and _gathers_to_load(run, receiver),
    )
    return Unknown()


def _gathers_to_load(run: Run, module: ModuleValue) -> bool:
    """Whether `load_state_dict()` surely communicates: FSDP1 gathers the parameters first, but
    copies a local state into its shards."""
    if sharding_inside(run, module) is not Sharding.FSDP1:
        return False
    layout, _ = fsdp1_type(run, module)
    return layout in {Layout.FULL, Layout.SHARDED}


@function(f"{STATE}.set_model_state_dict", f"{STATE}.set_optimizer_state_dict",
          f"{STATE}.set_state_dict")  # fmt: skip
def set_state(run: Run, name: str, call: Call) -> Value:
    api = name.rpartition(".")[2]
    module = as_module(run, call.arg(0, "model"))
    meta_device.left(run, [module] if module is not None else [])
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
        collective=module is not None and _set_communicates(run, call, module, of),
    )
    return Unknown()


def _set_communicates(
    run: Run, call: Call, module: ModuleValue, of: ModuleValue | OptimizerValue
) -> bool:
    """Whether a function that sets a state surely communicates.

    FSDP2 scatters whole tensors and takes its own parts as they are. FSDP1 gathers, but cuts its
    part out of an optimizer's whole tensors by itself where every rank has them.
    """
    sharding, full = sharding_inside(run, module), _option(call, "full_state_dict")
    if sharding is not Sharding.FSDP1:
        return sharding is Sharding.FSDP2 and full is True
    if isinstance(of, ModuleValue) or full is False:
        return True
    from_rank0 = _option(call, "cpu_offload") or _option(call, "broadcast_from_rank0")
    return full is True and from_rank0 is True


# Disk -------------------------------------------------------------------------------------------


def contents(run: Run, value: Value, depth: int = 0) -> list[Value]:
    """The state dicts, modules and parameters that a value is or holds."""
    value = run.settle(value)
    if isinstance(value, StateValue):
        return [value] if value.view != "keys" else []
    if isinstance(value, ModuleValue | OptimizerValue | ParametersOf):
        return [value]
    if isinstance(value, ShardTensor):
        return [value] if not value.reduction else []
    if depth > 3:
        return []
    parts: list[Value] = []
    if isinstance(value, Sequence):
        parts = value.items
    elif isinstance(value, Dict):
        parts = [*value.items.values(), *value.tensors.values()]
    elif isinstance(value, Unknown):
        parts = list(value.parts.values())
    return [found for part in parts for found in contents(run, part, depth + 1)]


def saved(
    run: Run, call: Call, api: str, value: Value, path: Value | None, *, collective: bool
) -> None:
    found = contents(run, value)
    states = [f for f in found if isinstance(f, StateValue)]
    modules = [f for f in found if isinstance(f, ModuleValue)]
    parameters = [f for f in found if isinstance(f, ParametersOf | ShardTensor)]
    layouts = [s.layout for s in states] + [parameter_layout(run, p) for p in parameters]
    run.emit(
        Saved,
        call.node,
        api=api,
        states=tuple(s.id for s in states),
        modules=tuple(m.id for m in modules),
        layouts=tuple(layouts),
        per_rank=path is None or may_depend_on_rank(run.settle(path)),
        path=path_pattern(run.settle(path)) if path is not None else "",
        collective=collective,
    )


def parameter_layout(run: Run, parameters: ParametersOf | ShardTensor) -> Layout:
    """The layout of parameters at this moment; UNKNOWN where they may be gathered."""
    if isinstance(parameters, ShardTensor):
        return Layout.SHARDED if parameters.certain else Layout.UNKNOWN
    if parameters.plain or sharding_of_parameters(run, parameters) is None:
        return Layout.PLAIN
    return Layout.SHARDED if surely_sharded(run, parameters) else Layout.UNKNOWN


def may_depend_on_rank(path: Value) -> bool:
    """Whether a path differs between ranks, or comes from where it can't be told."""
    if isinstance(path, Unknown):
        return path.by_rank or path.by_process or (not path.origin and not path.varying)
    return depends_on_rank(path) or not isinstance(path, Const)


def path_pattern(path: Value) -> str:
    """The constant of a path, or the text that makes it; "" where it may be any file."""
    if isinstance(path, Const):
        return str(path.value)
    return path.origin if isinstance(path, Unknown) and not path.varying else ""


@function("torch.save", "safetensors.torch.save_file")
def save(run: Run, name: str, call: Call) -> Value:
    path = call.arg(1, "f") or call.arg(1, "filename")
    saved(run, call, name, call.arg(0, "obj") or call.arg(0, "tensors") or Unknown(), path,
          collective=False)  # fmt: skip
    return Const(None)


@function(f"{DCP}.save", f"{DCP}.async_save", f"{DCP}.save_state_dict")
def dcp_save(run: Run, name: str, call: Call) -> Value:
    saved(run, call, name, call.arg(0, "state_dict") or Unknown(), Const(""),
          collective=_together(call))  # fmt: skip
    return Unknown()


@function(f"{DCP}.load", f"{DCP}.load_state_dict")
def dcp_load(run: Run, name: str, call: Call) -> Value:
    meta_device.left_by_any(run)
    run.emit(Loaded, call.node, api=name, collective=_together(call))
    return Const(None)


def _together(call: Call) -> bool:
    """Whether all ranks take part in a distributed checkpoint: not with `no_dist=True`."""
    alone = call.kwargs.get("no_dist")
    return alone is None or constant(alone) is False


@function("torch.load", "safetensors.torch.load_file")
def load(run: Run, name: str, call: Call) -> Value:
    path = run.settle(call.arg(0, "f") or call.arg(0, "filename") or Unknown())
    state = StateValue(run.new_id("state"), Layout.UNKNOWN, None, name)
    run.emit(
        Loaded,
        call.node,
        api=name,
        state=state.id,
        per_rank=may_depend_on_rank(path),
        path=path_pattern(path),
    )
    return state


@method("StateValue", "items", "values", "keys")
def view_of_state(run: Run, receiver: StateValue, name: str, call: Call) -> Value:
    return replace(receiver, view=name)


@method("StateValue", "get", "pop")
def tensor_of_state(run: Run, receiver: StateValue, name: str, call: Call) -> Value:
    return receiver.element()


@method("StateValue", "to_local", "redistribute")
def local_tensor(run: Run, receiver: StateValue, name: str, call: Call) -> Value:
    """A DTensor's part, or the same with other placements: replicated, it is whole."""
    if receiver.layout is Layout.SHARDED and name == "to_local":
        return receiver.as_layout(Layout.LOCAL, "local")
    return receiver.as_layout(Layout.UNKNOWN, "other")


@method("ParametersOf", "to_local", "redistribute")
def local_parameter(run: Run, receiver: ParametersOf, name: str, call: Call) -> Value:
    return TensorValue("local", receiver.modules)


@method("StateValue", "full_tensor")
def full_tensor(run: Run, receiver: StateValue, name: str, call: Call) -> Value:
    if receiver.layout is Layout.SHARDED:
        run.emit(Collective, call.node, api="full_tensor", collective=True)
    # What is gathered tensor by tensor is another state than the one that it was taken from.
    return receiver.as_layout(Layout.FULL, "whole")

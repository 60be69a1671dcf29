"""Records state dicts that are taken from, or loaded into, modules and optimizers."""

from __future__ import annotations

import functools
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching, values
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recorder import Entry
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.sites import is_statement
from fsdplint.trace import Fsdp1Used, Layout, StateCallRefused, StateLoaded, StateTaken

_HOME = "torch.distributed.checkpoint.state_dict"


def install() -> None:
    import torch
    import torch.distributed.checkpoint.state_dict as state_dict
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    for owner in (torch.nn.Module, torch.optim.Optimizer):
        patching.watch_method(owner, "state_dict", _record_taking_by_method, _note_result)
        patching.watch_method(owner, "load_state_dict", _record_loading_by_method)
    for name in ("get_model_state_dict", "get_optimizer_state_dict", "get_state_dict"):
        patching.watch_function(
            state_dict, name, functools.partial(_record_taking_by_function, name), _note_result
        )
    for name in ("set_model_state_dict", "set_optimizer_state_dict", "set_state_dict"):
        patching.watch_function(
            state_dict, name, functools.partial(_record_loading_by_function, name)
        )
    patching.watch_method(FSDP, "optim_state_dict", _record_fsdp1_optimizer, _note_result)
    patching.watch_method(
        FSDP, "optim_state_dict_to_load", _record_fsdp1_optimizer_to_load, _remember_local_state
    )


# Sharding -----------------------------------------------------------------------------------------


def sharding_of(subject: Any) -> str | None:
    """How a module, or the model of an optimizer, is sharded: "fsdp1", "fsdp2" or None."""
    import torch

    recording = current()
    if isinstance(subject, torch.nn.Module):
        for part in subject.modules():
            kind = recording.objects.sharded.get(part)
            if kind is not None:
                return kind
        return None
    for group in subject.param_groups:
        for parameter in group["params"]:
            if hasattr(parameter, "placements"):
                return "fsdp2"
            module = recording.objects.owners.get(parameter)
            if module is not None and any(
                kind == "fsdp1" and any(part is module for part in wrapper.modules())
                for wrapper, kind in recording.objects.sharded.items()
            ):
                return "fsdp1"
        break
    return None


def _fsdp1_layout(module: Any) -> Layout:
    """The layout of FSDP1's current state_dict_type."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    for part in module.modules():
        if isinstance(part, FSDP):
            kind = part._state_dict_type.name
            return {
                "FULL_STATE_DICT": Layout.FULL,
                "SHARDED_STATE_DICT": Layout.SHARDED,
                "LOCAL_STATE_DICT": Layout.LOCAL,
            }.get(kind, Layout.UNKNOWN)
    return Layout.UNKNOWN


def _fsdp1_rank0_only(module: Any, config: str = "_state_dict_config") -> bool:
    """Whether FSDP1 now gives the full state to rank 0 only, or takes it from rank 0 only."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    return any(
        bool(getattr(getattr(part, config, None), "rank0_only", False))
        for part in module.modules()
        if isinstance(part, FSDP)
    )


def _is_part_of_unit(module: Any) -> bool:
    """Whether a wrapper above a module keeps some of its parameters sharded at this point."""
    parts = set(module.modules())
    wrappers = current().objects.sharded.items()
    return any(
        kind == "fsdp1" and wrapper not in parts and _shards_some_of(wrapper, parts)
        for wrapper, kind in wrappers
    )


def _shards_some_of(wrapper: Any, parts: set[Any]) -> bool:
    handle = getattr(wrapper, "_handle", None)
    summoned = wrapper.training_state.name == "SUMMON_FULL_PARAMS"
    if handle is None or summoned or not handle.uses_sharded_strategy:
        return False
    return any(info.module in parts for info in handle.flat_param._param_infos)


def _is_summoned(module: Any) -> bool:
    """Whether `summon_full_params` is active, in which a state needs no communication."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    return any(
        part.training_state.name == "SUMMON_FULL_PARAMS"
        for part in module.modules()
        if isinstance(part, FSDP)
    )


def _name(subject: Any) -> str:
    import torch

    recording = current()
    if isinstance(subject, torch.nn.Module):
        return recording.objects.module(subject)
    return recording.objects.optimizer(subject)


# Taken --------------------------------------------------------------------------------------------


class _Note:
    """The events of state dicts that a call returns, each with whether it is sharded."""

    def __init__(self, parts: list[tuple[Entry[StateTaken], bool]]) -> None:
        self.parts = parts


def _record_taking(
    frame: FrameType,
    subjects: list[Any],
    api: str,
    layouts: list[Layout],
    sharded: list[str | None],
    rank0_only: bool = False,
) -> _Note:
    recording = current()
    parts = []
    for subject, layout, kind in zip(subjects, layouts, sharded, strict=True):
        # An optimizer's own method only copies. FSDP1 communicates for local states too.
        collective = kind == "fsdp2" and layout is Layout.FULL
        if kind == "fsdp1":
            of_optimizer = hasattr(subject, "param_groups")
            collective = api != "state_dict" or not (of_optimizer or _is_summoned(subject))
        entry = recording.recorder.event(
            StateTaken,
            frame,
            state=recording.objects.new_state(),
            of=_name(subject),
            layout=layout,
            api=api,
            collective=collective,
            rank0_only=rank0_only and kind is not None and layout is Layout.FULL,
        )
        parts.append((entry, kind is not None))
    return _Note(parts)


def _record_taking_by_method(
    frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Note:
    import torch

    subject = args[0]
    kind = sharding_of(subject)
    if isinstance(subject, torch.nn.Module) and _is_part_of_unit(subject):
        layout = Layout.LOCAL
    elif kind is None:
        layout = Layout.PLAIN
    elif kind == "fsdp2":
        layout = Layout.SHARDED
    elif isinstance(subject, torch.nn.Module):
        layout = _fsdp1_layout(subject)
    else:
        layout = Layout.LOCAL  # FSDP1: the optimizer's own state is of this rank's flat shard
    rank0_only = kind == "fsdp1" and layout is Layout.FULL and _fsdp1_rank0_only(subject)
    return _record_taking(frame, [subject], "state_dict", [layout], [kind], rank0_only)


def _record_taking_by_function(
    name: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Note:
    subjects = _subjects(name, args, kwargs)
    full = bool(getattr(kwargs.get("options"), "full_state_dict", False))
    kinds = [sharding_of(subject) for subject in subjects]
    if any(kinds):  # an optimizer is sharded as its model is
        kinds = [next(kind for kind in kinds if kind)] * len(kinds)
    layouts = [
        Layout.PLAIN if kind is None else Layout.FULL if full else Layout.SHARDED for kind in kinds
    ]
    rank0_only = full and bool(getattr(kwargs.get("options"), "cpu_offload", False))
    return _record_taking(frame, subjects, f"{_HOME}.{name}", layouts, kinds, rank0_only)


def _subjects(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    model = argument(args, kwargs, 0, "model")
    optimizers = argument(args, kwargs, 1, "optimizers")
    optimizers = list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]
    if "model" in name:
        return [model]
    if "optimizer" in name:
        return optimizers
    return [model, *optimizers]


def _note_result(note: _Note, result: Any) -> None:
    results = [result]
    if isinstance(result, tuple):
        results = list(result)
    for (entry, sharded), value in zip(note.parts, results, strict=False):
        taken = entry.event
        value_layout = values.layout_of(value)
        # The values decide, except for FSDP1's local shards, which are plain tensors.
        if value_layout is not None and taken.layout is not Layout.LOCAL:
            taken.layout = (
                value_layout if sharded or value_layout is Layout.SHARDED else Layout.PLAIN
            )
        entry.write()
        current().objects.remember_state(taken.state, taken.of, taken.layout, value)


def _takes_no_model(api: str, frame: FrameType, model: Any) -> bool:
    """Record a call that gets something else in place of the model, and fails."""
    import torch

    if isinstance(model, torch.nn.Module):
        return False
    given = "an optimizer" if isinstance(model, torch.optim.Optimizer) else "a state"
    current().recorder.event(Fsdp1Used, frame, api=f"FSDP.{api}", instead_of_model=given)
    return True


def _record_fsdp1_optimizer(
    frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Note | None:
    recording = current()
    model = argument(args, kwargs, 0, "model")
    optimizer = argument(args, kwargs, 1, "optim")
    if _takes_no_model("optim_state_dict", frame, model):
        return None
    recording.recorder.event(
        Fsdp1Used,
        frame,
        api="FSDP.optim_state_dict",
        module=recording.objects.module(model),
        collective=True,
    )
    kind = sharding_of(model)
    layout = _fsdp1_layout(model) if kind == "fsdp1" else Layout.UNKNOWN
    return _record_taking(frame, [optimizer], "FSDP.optim_state_dict", [layout], [kind])


def _record_fsdp1_optimizer_to_load(
    frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    recording = current()
    model = argument(args, kwargs, 0, "model")
    optimizer = argument(args, kwargs, 1, "optim")
    if _takes_no_model("optim_state_dict_to_load", frame, model):
        return None
    recording.recorder.event(
        Fsdp1Used,
        frame,
        api="FSDP.optim_state_dict_to_load",
        module=recording.objects.module(model),
        # each rank cuts its part out of full tensors by itself
        collective=_fsdp1_layout(model) is not Layout.FULL
        or _fsdp1_rank0_only(model, "_optim_state_dict_config"),
        dropped=not argument(args, kwargs, 4, "load_directly") and is_statement(frame),
    )
    return _name(optimizer) if optimizer is not None else None


def _remember_local_state(of: str, result: Any) -> None:
    recording = current()
    recording.objects.remember_state(recording.objects.new_state(), of, Layout.LOCAL, result)


# Loaded -------------------------------------------------------------------------------------------


def _is_of_itself(subject: Any, state: dict[str, Any]) -> bool:
    """Whether a state has the memory of all sharded parameters of a module of FSDP2."""
    import torch

    if not isinstance(subject, torch.nn.Module) or sharding_of(subject) != "fsdp2":
        return False
    kept = {address for one in values.tensors(state) if (address := values.local_address(one))}
    own = {address for one in subject.parameters() if (address := values.local_address(one))}
    return bool(own) and own <= kept


def _shared_with(subject: Any, state: Any, assign: bool | None) -> str | None:
    """Another module of FSDP2 of whose parameters a state has the memory, all of them."""
    import torch

    if not (assign and isinstance(subject, torch.nn.Module) and isinstance(state, dict)):
        return None
    kept = {address for one in values.tensors(state) if (address := values.local_address(one))}
    objects = current().objects
    for module, _ in objects.sharded.items():
        own = {address for one in module.parameters() if (address := values.local_address(one))}
        if module is not subject and own and own == kept:
            return objects.module(module)
    return None


def _record_loading(
    frame: FrameType,
    subject: Any,
    value: Any,
    api: str,
    collective: bool,
    full: bool | None = None,
    broadcast: bool | None = None,
    assign: bool | None = None,
    strict: bool | None = None,
    one_rank: bool = False,
) -> None:
    recording = current()
    known = recording.objects.state(value) if isinstance(value, dict) else None
    layout = known.layout if known is not None else None
    if layout is None:
        value_layout = values.layout_of(value)
        if value_layout is None:
            layout = Layout.UNKNOWN
        elif value_layout is Layout.FULL and sharding_of(subject) is None:
            layout = Layout.PLAIN
        else:
            layout = value_layout
    recording.recorder.event(
        StateLoaded,
        frame,
        into=_name(subject),
        state=known.name if known is not None else None,
        file=recording.objects.file_of(value),
        layout=layout,
        api=api,
        collective=collective,
        full=full,
        broadcast=broadcast,
        assign=assign,
        strict=strict,
        of_itself=known is not None and _is_of_itself(subject, value),
        shares=_shared_with(subject, value, assign),
        one_rank=one_rank,
    )


def _record_loading_by_method(
    frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    value = argument(args, kwargs, 1, "state_dict")
    of_optimizer = hasattr(args[0], "param_groups")
    # An optimizer's method loads without the other ranks, and so does FSDP1 a local state.
    collective = (
        not of_optimizer
        and sharding_of(args[0]) == "fsdp1"
        and _fsdp1_layout(args[0]) is not Layout.LOCAL
    )
    assign = None if of_optimizer else bool(argument(args, kwargs, 3, "assign", False))
    strict = None if of_optimizer else bool(argument(args, kwargs, 2, "strict", True))
    _record_loading(
        frame, args[0], value, "load_state_dict", collective, assign=assign, strict=strict
    )


def _record_loading_by_function(
    name: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    subjects = _subjects(name, args, kwargs)
    keys = {
        "set_model_state_dict": ["model_state_dict"],
        "set_optimizer_state_dict": ["optim_state_dict"],
        "set_state_dict": ["model_state_dict", "optim_state_dict"],
    }[name]
    positional = {"set_model_state_dict": 1, "set_optimizer_state_dict": 2}.get(name, 9)
    _record_refusal(name, frame, args, kwargs)
    for index, subject in enumerate(subjects):
        value = kwargs.get(keys[min(index, len(keys) - 1)])
        if value is None and len(args) > positional:
            value = args[positional]
        options = kwargs.get("options")
        collective = _set_communicates(subject, options)
        full = bool(getattr(options, "full_state_dict", False))
        broadcast = bool(getattr(options, "broadcast_from_rank0", False))
        api = f"{_HOME}.{name}"
        filled = bool(value)
        _record_loading(frame, subject, value, api, collective, full, broadcast, one_rank=filled)


def _record_refusal(
    name: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Record a call with options that contradict each other, or with an empty optimizer state."""
    options = kwargs.get("options")
    full = getattr(options, "full_state_dict", False)
    broadcast = getattr(options, "broadcast_from_rank0", False)
    state = argument(args, kwargs, 2, "optim_state_dict")
    of_optimizer = name != "set_model_state_dict" and bool(argument(args, kwargs, 1, "optimizers"))
    on_one_rank = full and getattr(options, "cpu_offload", False)
    empty = of_optimizer and state == {} and not (broadcast or on_one_rank)
    if empty or (broadcast and not full):
        model = argument(args, kwargs, 0, "model")
        current().recorder.event(
            StateCallRefused, frame, of=_name(model), api=name, empty=bool(empty)
        )


def _set_communicates(subject: Any, options: Any) -> bool:
    """Whether a function of `state_dict` communicates to set the state of a model or optimizer.

    FSDP2 scatters full tensors. FSDP1 gathers, but cuts its part out of an optimizer's full
    tensors without communication if every rank has them.
    """
    kind, full = sharding_of(subject), getattr(options, "full_state_dict", False)
    if kind != "fsdp1":
        return kind == "fsdp2" and bool(full)
    if not hasattr(subject, "param_groups") or not full:
        return True
    return bool(options.cpu_offload or getattr(options, "broadcast_from_rank0", False))

"""Changes in place of parameters of FSDP2 and of their copies, and averages that alias them."""

from __future__ import annotations

import functools
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching
from fsdplint.runtime.recorder.layouts import groups_of
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.values import local_address
from fsdplint.trace import (
    AliasAveraged,
    CopiedToItself,
    ShardCopySet,
    WeightsDrawn,
    WeightsSet,
)

_METHODS = ("copy_", "lerp_", "add_", "sub_", "mul_", "div_", "clamp_", "zero_", "fill_",
            "addcmul_", "addcdiv_", "__iadd__", "__isub__", "__imul__", "__itruediv__")  # fmt: skip
_RANDOM = ("normal_", "uniform_", "bernoulli_", "exponential_")
_FUNCTIONS = ("copy_", "lerp_", "add_", "sub_", "mul_", "div_", "zero_")


_copies: Any = None  # sharded tensors that are no parameters, and that the program has changed
_seen: set[tuple[Any, int, Any]] = set()  # where which shards are changed


def install() -> None:
    global _copies
    import torch
    from torch.utils.weak import WeakIdKeyDictionary

    _copies = WeakIdKeyDictionary()

    for name in _METHODS:
        watcher = patching.add_watcher(getattr(torch.Tensor, name), _record)
        setattr(torch.Tensor, name, watcher)
    for name in _RANDOM:
        watcher = patching.add_watcher(getattr(torch.Tensor, name), _record_drawn)
        setattr(torch.Tensor, name, watcher)
    for name in _FUNCTIONS:
        patching.watch_function(torch, f"_foreach_{name}", _record)
    for name in ("lerp_", "copy_"):
        before = functools.partial(_record_alias, name)
        setattr(torch.Tensor, name, patching.add_watcher(getattr(torch.Tensor, name), before))
    patching.watch_function(
        torch, "_foreach_lerp_", functools.partial(_record_alias, "torch._foreach_lerp_")
    )


def _record(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    targets = [one for one in _tensors(argument(args, kwargs, 0, "self")) if _is_on_all_ranks(one)]
    others = [one for value in (*args[1:], *kwargs.values()) for one in _tensors(value)]
    takes_shard = any(hasattr(one, "placements") for one in others)
    of_shard = any(hasattr(one, "placements") for one in targets)
    if of_shard and not _is_new(frame, (local_address(targets[0]), takes_shard)):
        if takes_shard and targets[0] in _copies:
            _record_copy(frame, others)
        return
    owner = next(filter(None, map(_sharded_owner if of_shard else _gathered_owner, targets)), None)
    stale = None if of_shard or owner else next(filter(None, map(_stale_owner, targets)), None)
    owner = owner or stale
    if owner is None:
        if of_shard and takes_shard:
            _copies[targets[0]] = None
        return
    recording = current()
    if (of_shard or stale is not None) and not _is_new(frame, recording.objects.module(owner)):
        return
    recording.recorder.event(
        WeightsSet,
        frame,
        modules=(recording.objects.module(owner),),
        in_place=True,
        extent="all" if hasattr(owner, "_flat_param") else "own",
        with_sharded=takes_shard,
        of_shard=of_shard,
    )


def _record_drawn(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record new random values of a parameter that `fully_shard` has sharded."""
    target = argument(args, kwargs, 0, "self")
    if hasattr(target, "placements") and _is_on_all_ranks(target):
        owner = _sharded_owner(target)
        module = current().objects.module(owner) if owner is not None else ""
        if module and _is_new(frame, module):
            current().recorder.event(WeightsDrawn, frame, modules=(module,), extent="own")


def _record_copy(frame: FrameType, operands: list[Any]) -> None:
    """Record that a sharded tensor, which is no parameter, is changed with a parameter again."""
    owner = next(filter(None, map(_sharded_owner, operands)), None)
    if owner is not None:
        module = current().objects.module(owner)
        if _is_new(frame, module):
            current().recorder.event(ShardCopySet, frame, modules=(module,))


def _is_on_all_ranks(tensor: Any) -> bool:
    """Whether no rank's part of a DTensor is empty, so that each rank records a change of it."""
    for number, placement in enumerate(getattr(tensor, "placements", ())):
        if placement.is_shard():
            ranks, size = tensor.device_mesh.size(number), tensor.shape[placement.dim]
            if -(-size // ranks) * (ranks - 1) >= size:
                return False
    return True


def _is_new(frame: FrameType, what: object) -> bool:
    """Whether no change of a shard is recorded for this place yet, by its address or module.

    A program may change all of them in each step.
    """
    key = (frame.f_code, frame.f_lineno, what)
    known = key in _seen
    _seen.add(key)
    return not known


def _record_alias(
    api: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Record an average, or a kept parameter, that is the memory of the parameter."""
    averages = _tensors(argument(args, kwargs, 0, "self"))
    others = _tensors(argument(args, kwargs, 1, "src" if api == "copy_" else "end"))
    for average, other in zip(averages, others, strict=False):
        addresses = [local_address(one) for one in (average, other)]
        owner = _owner_at(addresses[0]) if addresses[0] and len(set(addresses)) == 1 else None
        if owner is not None:
            recording = current()
            name = recording.objects.module(owner)
            if api == "copy_":
                recording.recorder.event(CopiedToItself, frame, modules=(name,))
            else:
                recording.recorder.event(AliasAveraged, frame, api=api, modules=(name,))
            return


def _owner_at(address: int) -> Any:
    for root, kind in current().objects.sharded.items():
        for module in root.modules() if kind == "fsdp2" else ():
            for parameter in module.parameters(recurse=False):
                if local_address(parameter) == address:
                    return module
    return None


def _tensors(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _sharded_owner(parameter: Any) -> Any:
    """The module of a sharded parameter of FSDP2, or of its `data`; None for any other tensor."""
    address = local_address(parameter)
    return _owner_at(address) if address else None


def _gathered_owner(parameter: Any) -> Any:
    """The module of a gathered parameter of FSDP2; None for any other tensor."""
    import torch

    if not isinstance(parameter, torch.nn.Parameter) or hasattr(parameter, "placements"):
        return None
    for root, kind in current().objects.sharded.items():
        for group in groups_of(root) if kind == "fsdp2" else ():
            for part in group.fsdp_params:
                if getattr(part, "_unsharded_param", None) is parameter:
                    return part._module_info.module
    return None


def _stale_owner(parameter: Any) -> Any:
    """The module of a parameter that FSDP1 keeps gathered while the program sees its shard.

    It is the wrapper for a flat parameter, and None for any other tensor.
    """
    import torch

    if not isinstance(parameter, torch.Tensor):
        return None
    for wrapper, kind in current().objects.sharded.items():
        # A wrapper that is being built forwards unknown attributes to itself.
        handle = vars(wrapper).get("_handle") if kind == "fsdp1" else None
        if handle is None or wrapper.training_state.name != "IDLE" or not _keeps_gathered(handle):
            continue
        flat = handle.flat_param
        if parameter is flat:
            return wrapper
        for info, one in zip(flat._param_infos, flat._params or (), strict=False):
            if parameter is one or _is_data(parameter, one):
                return info.module
    return None


def _keeps_gathered(handle: Any) -> bool:
    has_whole = hasattr(handle.flat_param, "_full_param_padded")  # from the first forward on
    return handle.uses_sharded_strategy and has_whole and not handle.needs_unshard()


def _is_data(tensor: Any, parameter: Any) -> bool:
    """Whether a tensor is `parameter.data`."""
    same = 0 < tensor.numel() == parameter.numel()
    return same and tensor.data_ptr() == parameter.data_ptr()

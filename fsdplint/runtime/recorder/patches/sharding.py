"""Records FSDP1's wrapper, FSDP2's fully_shard, and their methods."""

from __future__ import annotations

import copy
import functools
import linecache
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching, values
from fsdplint.runtime.recorder.patches import methods, parameter_marks
from fsdplint.runtime.recorder.patches.tensor_parallel import dimensions, whole_mesh
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recorder import Entry, of_this_rank
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.refusals import record_sharding_error
from fsdplint.runtime.recorder.sites import is_attribute_load, is_direct
from fsdplint.syntax.version_guards import optional_lines, tried_lines
from fsdplint.trace import (
    Clipped,
    Fsdp1Used,
    Fsdp2Used,
    Gathered,
    MethodRegistered,
    PolicyCalled,
    PrecisionChosen,
    Replicated,
    Sharded,
    SyncSwitched,
    Wrapped,
)
from fsdplint.trace.torch_versions import ARGUMENTS, METHODS

# FSDP1 methods that users look for on an FSDP2 model.
_WRAPPERS = ("module", "_fsdp_wrapped_module")
_MISSING = ("no_sync", "clip_grad_norm_", *_WRAPPERS, "summon_full_params")
_POLICIES = (
    "transformer_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "lambda_auto_wrap_policy",
)
_FSDP1_STATICS = (
    "state_dict_type",
    "set_state_dict_type",
    "get_state_dict_type",
    "summon_full_params",
    "fsdp_modules",
    "register_comm_hook",
    "full_optim_state_dict",
    "sharded_optim_state_dict",
    "shard_full_optim_state_dict",
    "flatten_sharded_optim_state_dict",
    "scatter_full_optim_state_dict",
    "rekey_optim_state_dict",
)


def install() -> None:
    import torch.distributed.fsdp as fsdp
    from torch.distributed.fsdp import FullyShardedDataParallel, wrap
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
    from torch.nn.parallel import DistributedDataParallel

    patching.watch_method(
        FullyShardedDataParallel,
        "__init__",
        _record_wrapping,
        _describe_wrapper,
        direct=False,
        failed=lambda wrapper, error: current().layouts.exit_wrapper(),
    )
    for name in _FSDP1_STATICS:
        patching.watch_method(
            FullyShardedDataParallel,
            name,
            functools.partial(_record_fsdp1_use, name),
            _watch_edits if name == "summon_full_params" else None,
        )
    for name in _POLICIES:
        patching.watch_function(wrap, name, functools.partial(_record_policy_call, name))
    patching.watch_method(ShardedGradScaler, "__init__", _record_sharded_scaler)
    patching.watch_method(DistributedDataParallel, "__init__", _record_replication)
    patching.watch_function(
        fsdp, "fully_shard", _record_sharding, _describe_shards, failed=record_sharding_error
    )
    patching.watch_function(fsdp, "register_fsdp_forward_method", _record_forward_method)
    patching.watch_method(fsdp.MixedPrecisionPolicy, "__init__", _record_precision)
    patching.watch_method(fsdp.FSDPModule, "unshard", functools.partial(_record_unshard, True))
    patching.watch_method(fsdp.FSDPModule, "reshard", functools.partial(_record_unshard, False))
    for name in METHODS.keys() - {"set_reshard_after_forward"}:
        patching.watch_method(fsdp.FSDPModule, name, functools.partial(_record_fsdp2_use, name))
    for name in _MISSING:
        setattr(fsdp.FSDPModule, name, _Missing(name, fsdp.FSDPModule))


# FSDP1 --------------------------------------------------------------------------------------------


def _record_wrapping(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    import inspect

    recording = current()
    wrapper = args[0]
    inner = argument(args, kwargs, 1, "module")
    inner_name = recording.objects.module(inner)
    # The wrapper has no submodules yet: it gets a name now, and is described after its
    # constructor.
    name = recording.objects.new_name("m")
    recording.objects.names.set(wrapper, name)
    recording.objects.fsdp1_of.set(inner, weakref.ref(wrapper))
    recording.objects.sharded.set(wrapper, "fsdp1")
    init = inspect.unwrap(type(wrapper).__init__)
    options = values.options(init, args, kwargs)
    for option in ("ignored_modules", "ignored_states"):
        if isinstance(kwargs.get(option), list | tuple | set) and not kwargs[option]:
            options.pop(option)  # an automatic wrapper gets an empty set
    parameters = inspect.signature(init).parameters
    for option in [name for name, value in options.items() if value is None]:
        if option in parameters and parameters[option].default is None:
            del options[option]
    recording.recorder.event(
        Wrapped,
        frame,
        module=name,
        inner=inner_name,
        options=options,
        same_weights=of_this_rank(values.sample([inner])),
        mixes=_mixes(inner, options, args, kwargs),
        mesh=_mesh(argument(args, kwargs, 16, "device_mesh")),
        not_classes=_not_classes(_given_classes(args, kwargs)),
        weights_in=_weights_in([inner], argument(args, kwargs, 7, "mixed_precision")),
        casts_weights=_casts_weights(inner, argument(args, kwargs, 7, "mixed_precision")),
        collective=bool(options.get("sync_module_states")),
    )
    methods.watch(inner)
    recording.layouts.enter_wrapper(
        wrapper, "offload_params=True" in str(options.get("cpu_offload"))
    )
    return wrapper


def _weights_in(modules: list[Any], policy: Any) -> str:
    """See `Sharded.weights_in`."""
    param_dtype = getattr(policy, "param_dtype", None)
    trained = {p.dtype for module in modules for p in module.parameters() if p.requires_grad}
    return str(param_dtype) if trained == {param_dtype} else ""


def _casts_weights(module: Any, policy: Any) -> bool:
    """See `Wrapped.casts_weights`."""
    param_dtype = getattr(policy, "param_dtype", None)
    trained = {p.dtype for p in module.parameters() if p.requires_grad}
    return param_dtype is not None and bool(trained) and param_dtype not in trained


def _mesh(mesh: Any) -> str | None:
    return current().objects.names.get(mesh) if mesh is not None else None


def _given_classes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the policy of a constructor has as classes; None if it has another test."""
    policy = argument(args, kwargs, 5, "auto_wrap_policy")
    chosen = getattr(policy, "_module_classes", None)
    return chosen or getattr(policy, "keywords", {}).get("transformer_layer_cls")


def _not_classes(chosen: Any) -> str:
    """What a policy has instead of a set of classes: see `Wrapped.not_classes`."""
    if isinstance(chosen, type):
        return "one class"
    wrong = [kind for kind in chosen or () if not isinstance(kind, type)]
    return "" if not wrong else "names" if isinstance(wrong[0], str) else "instances"


def _mixes(inner: Any, options: dict[str, Any], args: tuple[Any, ...], kwargs: Any) -> bool:
    """Whether a flat parameter has parameters with and without gradients."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    if options.get("use_orig_params") or any(name.startswith("ignored_") for name in options):
        return False
    classes: tuple[type, ...] = ()
    if argument(args, kwargs, 5, "auto_wrap_policy") is not None:
        chosen = _given_classes(args, kwargs)
        if not chosen or _not_classes(chosen):
            return False
        classes = tuple(chosen)
    units = [m for m in inner.modules() if m is inner or classes and isinstance(m, classes)]
    for unit in units:
        kinds: set[bool] = set()
        stack: list[Any] = [unit]
        while stack:
            module = stack.pop()
            kinds.update(p.requires_grad for p in module.parameters(recurse=False))
            stack.extend(
                child
                for child in module.children()
                if child not in units and not isinstance(child, FullyShardedDataParallel)
            )
        if len(kinds) > 1:
            return True
    return False


def _describe_wrapper(wrapper: Any, result: Any) -> None:
    recording = current()
    recording.layouts.exit_wrapper()
    recording.objects.invalidate()
    recording.objects.describe(wrapper)


def _record_policy_call(
    name: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    if not args and not {"module", "recurse", "nonwrapped_numel"} & kwargs.keys():
        current().recorder.event(PolicyCalled, frame, api=name)


def _record_fsdp1_use(
    name: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Entry[Fsdp1Used], Any] | None:
    import torch
    import torch.distributed.fsdp as fsdp

    recording = current()
    module = next((v for v in (*args, *kwargs.values()) if isinstance(v, torch.nn.Module)), None)
    wrapped = module is not None and any(
        isinstance(part, fsdp.FullyShardedDataParallel) for part in module.modules()
    )
    use = recording.recorder.event(
        Fsdp1Used,
        frame,
        api=f"FSDP.{name}",
        module=recording.objects.module(module) if module is not None else None,
        collective=wrapped and name in ("summon_full_params", "full_optim_state_dict"),
    )
    if name != "summon_full_params":
        return None
    writes_back = bool(argument(args, kwargs, 2, "writeback", True))
    recording.calls.summoning = (use.number, writes_back) if use is not None else None
    return None if writes_back or use is None or module is None else (use, module)


def _watch_edits(block: tuple[Entry[Fsdp1Used], Any], context: Any) -> None:
    """Let a context that drops changes of parameters note them when it ends."""
    context.gen = _note_edits(*block, copy.copy(context))


def _note_edits(use: Entry[Fsdp1Used], module: Any, context: Any) -> Iterator[None]:
    with context:
        before, events = values.sums(module), current().recorder.number
        yield
        if values.sums(module) != before and current().recorder.number == events:
            use.event.edits_lost = any(map(_is_sharded_by_strategy, module.modules()))
            use.write()


def _is_sharded_by_strategy(module: Any) -> bool:
    handle = getattr(module, "_handle", None)
    return handle is not None and bool(getattr(handle, "uses_sharded_strategy", False))


def _record_sharded_scaler(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    current().recorder.event(Fsdp1Used, frame, api="ShardedGradScaler", module=None)


def _record_replication(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    inner = argument(args, kwargs, 1, "module")
    options = {key: values.describe(value) for key, value in kwargs.items() if key != "module"}
    recording.recorder.event(
        Replicated, frame, inner=recording.objects.module(inner), options=options, collective=True
    )


# FSDP2 --------------------------------------------------------------------------------------------


def _record_sharding(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from torch.distributed.fsdp import CPUOffloadPolicy

    recording = current()
    target = argument(args, kwargs, 0, "module")
    group = list(target) if isinstance(target, (list, tuple)) else [target]
    names = [recording.objects.module(module) for module in group]
    for module in group:
        parameter_marks.record_attributes(module, frame)
        recording.layouts.note_offload(
            module, isinstance(kwargs.get("offload_policy"), CPUOffloadPolicy)
        )
    recording.recorder.event(
        Sharded,
        frame,
        module=names[0] if names else "",
        group=tuple(names) if isinstance(target, (list, tuple)) else (),
        options={key: values.describe(value) for key, value in kwargs.items() if key != "module"},
        mesh=_mesh(kwargs.get("mesh")) or "",
        whole_mesh=whole_mesh(kwargs.get("mesh")),
        dims=dimensions(kwargs.get("mesh")),
        positional=tuple(values.describe(value) for value in args[1:]),
        frozen=not any(p.requires_grad for module in group for p in module.parameters()),
        same_weights=of_this_rank(values.sample(group)),
        weights_in=_weights_in(group, kwargs.get("mp_policy")),
    )
    for key in kwargs.keys() & ARGUMENTS.keys():
        record_recent_api(f"fully_shard.{key}", group[0], frame)
    return group


def _describe_shards(group: list[Any], result: Any) -> None:
    recording = current()
    recording.objects.invalidate()
    for module in group:
        recording.objects.sharded.set(module, "fsdp2")
        recording.objects.describe(module)
        methods.watch(module)


def _record_precision(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    dtypes = dict(zip(("param_dtype", "reduce_dtype"), args[1:], strict=False)) | kwargs
    current().recorder.event(
        PrecisionChosen,
        frame,
        param_dtype=_text(dtypes.get("param_dtype")),
        reduce_dtype=_text(dtypes.get("reduce_dtype")),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _record_forward_method(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    module = argument(args, kwargs, 0, "module")
    method = argument(args, kwargs, 1, "method_name")
    recording.recorder.event(
        MethodRegistered, frame, module=recording.objects.module(module), method=str(method)
    )


def _record_unshard(
    gathered: bool, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    recording = current()
    recording.recorder.event(
        Gathered,
        frame,
        module=recording.objects.module(args[0]),
        gathered=gathered,
        collective=gathered,
    )


def _record_fsdp2_use(
    name: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    record_recent_api(name, args[0], frame)


def record_recent_api(api: str, module: Any, frame: FrameType) -> None:
    """Record a use of an API that some versions of torch with FSDP2 do not have."""
    recording = current()
    lines = "".join(linecache.getlines(frame.f_code.co_filename))
    recording.recorder.event(
        Fsdp2Used,
        frame,
        api=api,
        module=recording.objects.module(module),
        optional=frame.f_lineno in optional_lines(lines),
    )


class _Missing:
    """A descriptor for a name of FSDP1 on FSDPModule, which records reads of it.

    The result of a read does not change: a method of the user's class, a submodule, or an
    AttributeError.
    """

    def __init__(self, name: str, owner: type) -> None:
        self.name = name
        self.owner = owner

    def __get__(self, instance: Any, cls: type) -> Any:
        import sys

        recording = current()
        mro = cls.__mro__
        for parent in mro[mro.index(self.owner) + 1 :]:
            if self.name in vars(parent):
                found = vars(parent)[self.name]
                return found.__get__(instance, cls) if hasattr(found, "__get__") else found
        if (
            instance is not None
            and self.name not in instance._modules
            and recording.recorder.listening()
        ):
            try:
                self._record(instance, sys._getframe(1))
            except Exception:
                recording.recorder.record_error()
        # Python now calls nn.Module.__getattr__, which finds a submodule or raises.
        raise AttributeError(self.name)

    def _record(self, module: Any, frame: FrameType) -> None:
        recording = current()
        if not is_direct(frame) or not is_attribute_load(frame):
            return
        if self.name in _WRAPPERS and (_is_found(module, self.name) or _is_in_try(frame)):
            return
        name = recording.objects.module(module)
        if self.name == "no_sync":
            recording.recorder.event(SyncSwitched, frame, module=name, api="no_sync", enabled=False)
        elif self.name == "clip_grad_norm_":
            recording.recorder.event(Clipped, frame, api="method", modules=(name,))
        else:
            recording.recorder.event(Fsdp1Used, frame, api=f"FSDP.{self.name}", module=name)


def _is_found(module: Any, name: str) -> bool:
    """Whether a module has an attribute, or computes attributes itself."""
    import torch

    return (
        type(module).__getattr__ is not torch.nn.Module.__getattr__
        or name in module._buffers
        or name in module._parameters
    )


def _is_in_try(frame: FrameType) -> bool:
    """Whether the current line of the program is in a `try`."""
    lines = "".join(linecache.getlines(frame.f_code.co_filename))
    return frame.f_lineno in tried_lines(lines)

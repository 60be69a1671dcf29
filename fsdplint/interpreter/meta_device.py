"""Modules whose parameters are certainly on the meta device, and the code that moves them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import libcst as cst

from fsdplint.interpreter.error_handling import catches_errors
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.module_tree import sharding_inside
from fsdplint.interpreter.neutral_contexts import is_neutral
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.signals import is_in_try
from fsdplint.interpreter.torch_values import ParametersOf, RankValue, StateValue, TensorValue
from fsdplint.interpreter.values import (
    Const,
    Context,
    LibraryObject,
    ModuleValue,
    Symbol,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.source.source import NodeSite
from fsdplint.trace import Called, GuardKind, Layout, Sharding
from fsdplint.trace.groups import Groups


def builds_on_meta(run: Run) -> bool:
    """Whether a module that is built here is certainly on the meta device, on every rank."""
    if _doubtful(run):
        return False
    inner = None
    for context in run.contexts:
        if isinstance(context, Context):
            inner = context if context.kind == "meta_device" else inner
        elif not is_neutral(context) or _is_device(context):
            inner = None  # may be another device
    return inner is not None


def torch_class_on_meta(run: Run, call: Call, now: bool) -> bool:
    """The same for a module of torch.nn with an optional `device`; now: the default."""
    device = call.kwargs.get("device")
    if call.open or any(isinstance(value, LibraryObject | Context) for value in call.args):
        return False
    if device is None or is_none(device):
        return now
    meta = isinstance(device, Context) and device.kind == "meta_device"
    return (meta or constant(device) == "meta") and not _doubtful(run)


def _is_device(context: Value) -> bool:
    return isinstance(context, LibraryObject) and context.name == "torch.device"


def _doubtful(run: Run) -> bool:
    return any(entry.guard.kind is not GuardKind.CONFIG for entry in run.guards)


# Code that moves parameters, or may move them -----------------------------------------------------


def leave_meta(run: Run, modules: Iterable[ModuleValue], *, keeps_dtype: bool = False) -> None:
    """From here on, parameters of these modules and their submodules may not be on meta.

    They may also have another dtype, if what happens to them does not keep it.
    """
    for module in modules:
        for part in _parts(run, module):
            part.must_be_meta = False
            if not keeps_dtype:
                part.dtype = ""


def load_everywhere(run: Run) -> None:
    """A checkpoint is loaded in place into tensors of any module, which keep their dtype."""
    modules = [value for value in run.objects.values() if isinstance(value, ModuleValue)]
    leave_meta(run, modules, keeps_dtype=True)


def leave_meta_in_arguments(
    run: Run, values: Iterable[Value], *, keeps_dtype: bool = False
) -> None:
    """Parameters, or tensors that may be parts of parameters, are passed to other code.

    Code that has a tensor may give it values. It may change the dtype of a parameter alone.
    """
    for value in values:
        held = run.settle(value)
        if isinstance(held, ParametersOf):
            leave_meta(run, held.modules, keeps_dtype=keeps_dtype)
        elif isinstance(held, TensorValue):
            leave_meta(run, held.modules, keeps_dtype=True)


def note_attribute(module: ModuleValue, value: Value) -> None:
    """An attribute of a module is set, which may be a parameter."""
    if not isinstance(value, Const | ModuleValue):
        module.must_be_meta = False
        module.dtype = ""


def note_move(run: Run, module: ModuleValue, name: str, call: Call) -> None:
    """`to_empty` gives parameters memory; moving them to another device fails on meta."""
    types = all(isinstance(run.settle(value), Symbol) for value in call.values)
    if name in {"to_empty", "cuda", "cpu"} or name == "to" and not (types and not call.open):
        for part in _parts(run, module):
            part.must_be_meta = False


def note_load(run: Run, module: ModuleValue, state: Value, call: Call) -> None:
    """`load_state_dict` copies into parameters, which does nothing on meta, or replaces them."""
    assign = call.arg(2, "assign")
    copies = assign is None or constant(assign) is False
    sharded = sharding_inside(run, module) is not None
    same = isinstance(state, StateValue) and state.layout is Layout.SHARDED
    if not copies or call.open or sharded and not same:
        leave_meta(run, [module], keeps_dtype=copies and not call.open)


def fails_to_move(run: Run, module: ModuleValue, name: str, call: Call) -> bool:
    """Whether a method certainly moves a module from the meta device to another device."""
    if name not in {"to", "cuda", "cpu"} or call.open or not _is_certain(run, module, call.node):
        return False
    return name != "to" or any(_is_real_device(run.settle(value)) for value in call.values)


def device_name(run: Run, value: Value) -> str | None:
    """The type of the device that a module is moved to, with its index if that is known."""
    value = run.settle(value)
    if isinstance(value, LibraryObject) and value.name == "torch.device":
        value = run.settle(value.get("0", "type") or value)
    if isinstance(value, Const) and isinstance(value.value, str):
        return value.value
    if isinstance(value, Unknown):
        found = re.match(r"""[fF]["']([a-z]+):""", value.origin)
        return found[1] if found else None
    return "cuda" if isinstance(value, RankValue) else None


def _is_real_device(value: Value) -> bool:
    """Whether a value is a device other than meta; an unknown value may be meta."""
    if isinstance(value, Const):
        return isinstance(value.value, str | int) and not str(value.value).startswith("meta")
    return isinstance(value, RankValue) or (
        isinstance(value, LibraryObject) and value.name == "torch.device"
    )


def _is_certain(run: Run, module: ModuleValue, node: cst.CSTNode) -> bool:
    """Whether parameters of a module are certainly on meta, where no error is handled."""
    if catches_errors(run, node) or _doubtful(run):
        return False
    return any(
        part.must_be_meta and run.trace.modules[part.id].own_parameters is True
        for part in _parts(run, module)
    )


def _parts(run: Run, module: ModuleValue) -> Iterator[ModuleValue]:
    for part in run.trace.submodules(module.id):
        held = run.objects.get(part)
        if isinstance(held, ModuleValue):
            yield held


# Queries ------------------------------------------------------------------------------------------

# Attributes of a parameter on the meta device.
META_ATTRIBUTES: dict[str, Value] = {
    "device": LibraryObject("torch.device", {"type": Const("meta"), "0": Const("meta")}),
    "is_meta": Const(True),
}


def is_on_meta(run: Run, value: ParametersOf) -> bool:
    """Whether a value is a parameter of a module that is certainly on meta, as far as the first
    parameter shows, which a program asks for its device."""
    parts = (part for module in value.modules for part in _parts(run, module))
    own = (part for part in parts if run.trace.modules[part.id].own_parameters is True)
    first = next(own, None)
    return value.element and first is not None and first.must_be_meta


def stays_on_meta(run: Run, module: ModuleValue, event: Called) -> bool:
    """Whether parameters that `fully_shard` shards are certainly on meta in this call."""
    there = [part for part in _parts(run, module) if part.must_be_meta]
    if not there or sharding_inside(run, module) is not Sharding.FSDP2:
        return False
    site = event.site
    if not isinstance(site, NodeSite) or is_in_try(run.source, site.node):
        return False
    if run.trace.escaped(module.id, event):
        return False
    family = {*run.trace.submodules(module.id), *run.trace.ancestors(module.id)}
    if not all(run.trace.modules[one].children_known for one in family):
        return False
    groups = Groups(run.trace)
    return any(
        run.trace.modules[part.id].own_parameters is True and groups.owner(part.id) is not None
        for part in there
    )

"""Attributes that a program sets on parameters and reads, and hooks on parameters."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.randomness import is_parameter_itself
from fsdplint.interpreter.optimizers import stale_modules
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.sharded_parameters import must_be_sharded
from fsdplint.interpreter.torch_values import HookHandle, ParametersOf, is_new_parameter
from fsdplint.interpreter.values import LibraryObject, ModuleValue, Unknown, Value
from fsdplint.trace import MethodRegistered, ParameterMarked, ParameterMarkRead, RowEdited
from fsdplint.trace.groups import Shard

# Attributes of every tensor.
_OWN = {"requires_grad", "data", "grad", "names", "grad_dtype"}


EDITS = {"zero_", "fill_", "mul_", "normal_", "uniform_"}


def mark_parameters(
    run: Run, target: Value, name: str, *, hook: bool = False
) -> ParameterMarked | None:
    """Record that an attribute is set on a parameter, or that a hook is registered."""
    modules: tuple[str, ...] = ()
    if isinstance(target, ParametersOf) and target.element:
        modules = tuple(module.id for module in target.modules)
    elif is_new_parameter(target):
        modules = _holders(run, target)
    if modules and name not in _OWN:
        run.marks.add(name)
        return run.emit(
            ParameterMarked,
            run.executing,
            modules=modules,
            name=name,
            hook=hook,
            sharded=hook and _is_sharded(run, target),
        )
    return None


def _is_sharded(run: Run, target: Value) -> bool:
    return (
        isinstance(target, ParametersOf)
        and is_parameter_itself(target)
        and must_be_sharded(run, target)
    )


def unmark_parameters(run: Run, target: Value, name: str) -> None:
    """`del parameter.name`"""
    if name in run.marks and isinstance(target, ParametersOf):
        _mark_removed(run, (mark for mark in run.trace.of(ParameterMarked) if mark.name == name))


def remove_hooks(run: Run, function: Value, call: Call) -> None:
    """`handle.remove()`; an unknown handle may belong to any hook."""
    handle = function.owner if isinstance(function, Unknown) else None
    node = call.node.func if isinstance(call.node, cst.Call) else None
    is_text = isinstance(node, cst.Attribute) and node.attr.value == "remove"
    is_read = handle is not None and handle.parts.get("remove") is function
    if call.values or not (is_text or is_read):
        return
    hooks = [mark for mark in run.trace.of(ParameterMarked) if mark.hook]
    if isinstance(handle, HookHandle) and handle.mark is not None:
        same = [mark for mark in hooks if mark.site == handle.mark.site]
        hooks = [*same, handle.mark]  # in a loop, one handle stands for those of all iterations
    _mark_removed(run, hooks)


def _mark_removed(run: Run, marks: Iterable[ParameterMarked]) -> None:
    for mark in marks:
        if not any(isinstance(event, Shard) for event in run.trace.events[mark.index :]):
            mark.removed = True


def read_mark(run: Run, target: Value, name: str, node: cst.CSTNode) -> None:
    """Record that an attribute is read that was set on parameters before."""
    if name in run.marks and isinstance(target, ParametersOf) and target.element:
        if not stale_modules(run, target):
            modules = tuple(module.id for module in target.modules)
            run.emit(ParameterMarkRead, node, modules=modules, name=name)


def note_row_edit(run: Run, node: cst.Call) -> None:
    """Record `parameter[0].zero_()` before the call."""
    method = node.func
    if not isinstance(method, cst.Attribute) or method.attr.value not in EDITS:
        return
    part = method.value
    if not isinstance(part, cst.Subscript) or _in_forward(run):
        return
    row = part.slice[0].slice
    if isinstance(row, cst.Slice):
        known = row.lower is not None or row.upper is not None
    else:
        value = row.value if isinstance(row, cst.Index) else None
        known = not isinstance(value, cst.Ellipsis | cst.Tuple | cst.Comparison)
    whole = run.evaluations.get(part.value)
    if known and isinstance(whole, ParametersOf) and whole.element and len(whole.modules) == 1:
        run.emit(RowEdited, node, module=whole.modules[0].id, api=method.attr.value)


def _in_forward(run: Run) -> bool:
    """Whether a module is executing whose parameters may be gathered."""
    gathering = {event.method for event in run.trace.of(MethodRegistered)}
    running = {getattr(run.trace.events[number], "via", "") for number in run.calling}
    return bool(running & {"call", "forward", *gathering}) or bool(running and "*" in gathering)


def _holders(run: Run, parameter: LibraryObject) -> tuple[str, ...]:
    return tuple(
        value.id
        for value in run.objects.values()
        if isinstance(value, ModuleValue)
        and any(held is parameter for held in value.attributes.values())
    )

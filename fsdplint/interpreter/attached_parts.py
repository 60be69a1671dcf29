"""Submodules and parameters that are put into modules that are sharded already."""

from __future__ import annotations

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import (
    Const,
    LibraryObject,
    ModuleValue,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace import ModuleAttached, ParameterAttached, RequiresGradSet


def attach_module(run: Run, parent: ModuleValue, child: Value) -> None:
    """Record that a module that is sharded already gets a submodule."""
    if not isinstance(child, ModuleValue):
        return
    run.structure += 1
    covered = _sharded_modules(run)
    if parent.id not in covered:
        return
    new = [part for part in run.trace.submodules(child.id) if part not in covered]
    new = [part for part in new if run.trace.modules[part].own_parameters]
    if new:
        run.emit(ModuleAttached, run.executing, module=parent.id, new=tuple(new))


def note_plain_parameter(
    run: Run, module: ModuleValue, name: str, parameter: LibraryObject
) -> None:
    """Record that a module that is sharded already gets a parameter that is not."""
    if _has_gradient(parameter) and constant(parameter.get("plain")) is True:
        if module.id in _sharded_modules(run):
            event = run.emit(ParameterAttached, run.executing, module=module.id, name=name)
            run.new_parameters.append((event, module, parameter))


def note_optimized(run: Run, optimizer: str, lists: list[ParametersOf]) -> None:
    """Note the new parameters that an optimizer certainly gets, from whole lists of a module's."""
    whole = [one for one in lists if not one.name and not one.by_name and not one.derived]
    given = {module.id for one in whole if not one.filtered_by for module in one.modules}
    held = set(run.trace.submodules(*given))
    for event, module, parameter in run.new_parameters:
        kept = module.attributes.get(event.name) is parameter
        if kept and module.id in held and _has_gradient(parameter) and not _may_freeze(run, event):
            event.optimizers = (*event.optimizers, optimizer)


def _has_gradient(parameter: Value) -> bool:
    """Whether a new parameter certainly has `requires_grad`."""
    flag = parameter.get("requires_grad") if isinstance(parameter, LibraryObject) else Unknown()
    return constant(flag or Const(True)) is True


def _may_freeze(run: Run, event: ParameterAttached) -> bool:
    """Whether the program has set `requires_grad` of parameters of the module since then."""
    return any(
        event.module in run.trace.submodules(*change.modules)
        for change in run.trace.after(event, RequiresGradSet)
    )


def _sharded_modules(run: Run) -> set[str]:
    """The modules that are sharded, themselves or with a module around them."""
    sharded = [
        value.id
        for value in run.objects.values()
        if isinstance(value, ModuleValue) and (value.sharded or value.wrapper == "fsdp1")
    ]
    return set(run.trace.submodules(*sharded))

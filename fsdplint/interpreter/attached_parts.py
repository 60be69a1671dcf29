"""Submodules and parameters that are put into modules that are sharded already."""

from __future__ import annotations

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, LibraryObject, ModuleValue, Value, constant
from fsdplint.trace import ModuleAttached, ParameterAttached


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
    trained = constant(parameter.get("requires_grad") or Const(True)) is True
    if trained and constant(parameter.get("plain")) is True:
        if module.id in _sharded_modules(run):
            run.emit(ParameterAttached, run.executing, module=module.id, name=name)


def _sharded_modules(run: Run) -> set[str]:
    """The modules that are sharded, themselves or with a module around them."""
    sharded = [
        value.id
        for value in run.objects.values()
        if isinstance(value, ModuleValue) and (value.sharded or value.wrapper == "fsdp1")
    ]
    return set(run.trace.submodules(*sharded))

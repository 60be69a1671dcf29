"""Which parameters have no gradients."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.interpreter.module_tree import child_values
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import Const, ModuleValue, Value
from fsdplint.trace import GuardKind


def set_frozen(
    run: Run, modules: Iterable[ModuleValue], frozen: bool, *, wholly: bool = True
) -> None:
    """Say of modules and all in them that their parameters have no gradients, or have again."""
    surely = not any(entry.guard.kind is GuardKind.VARYING for entry in run.guards)
    if not frozen:
        doubt_frozen(run, modules)
    for module in modules:
        for part in run.trace.submodules(module.id):
            run.trace.modules[part].frozen = frozen
            held = run.objects.get(part)
            if isinstance(held, ModuleValue):
                held.some_frozen = frozen and surely
                held.all_frozen = frozen and (held.all_frozen or (wholly and not run.guards))


def freeze_parameters(run: Run, parameters: ParametersOf, value: Value) -> None:
    """`requires_grad` of parameters, each or some of them, is set."""
    if parameters.name and any(child_values(run, module) for module in parameters.modules):
        return  # one that the module holds itself, which says nothing of its parts
    if not (isinstance(value, Const) and value.value is True):
        # Not taken back where it is set to True: that may be another parameter of them.
        set_frozen(run, parameters.modules, True, wholly=parameters.each)
    if not (isinstance(value, Const) and value.value is False) or parameters.filtered_by:
        doubt_frozen(run, parameters.modules)


def doubt_frozen(run: Run, modules: Iterable[ModuleValue]) -> None:
    """It is not certain any more that any parameters of these modules have no gradients."""
    for module in modules:
        for part in run.trace.submodules(module.id):
            held = run.objects.get(part)
            if isinstance(held, ModuleValue):
                held.some_frozen = held.all_frozen = False
        doubt_wholly_frozen(run, module)


def doubt_wholly_frozen(run: Run, module: ModuleValue) -> None:
    """A module, what it holds and what holds it may have parameters with gradients again."""
    for other, held in run.objects.items():
        if isinstance(held, ModuleValue) and held.all_frozen:
            if run.trace.related(other, module.id):
                held.all_frozen = False

"""Parameters with `requires_grad=False`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fsdplint.interpreter.module_tree import child_values
from fsdplint.interpreter.parameter_sizes import parameters_below
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import NameTest, ParametersOf, is_new_parameter
from fsdplint.interpreter.values import (
    Const,
    LibraryObject,
    ModuleValue,
    Sequence,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace import Escaped, GuardKind, KnownParameter, RequiresGradSet


def set_frozen(
    run: Run, modules: Iterable[ModuleValue], frozen: bool, *, wholly: bool = True
) -> None:
    """Set whether the parameters of modules, submodules included, are frozen."""
    surely = not any(entry.guard.kind is GuardKind.VARYING for entry in run.guards)
    if not frozen:
        doubt_frozen(run, modules)
    for module in modules:
        for part in run.trace.submodules(module.id):
            run.trace.modules[part].frozen = frozen
            held = run.objects.get(part)
            if isinstance(held, ModuleValue):
                held.some_frozen = frozen and surely
                always = wholly and _is_always(run, part)
                held.all_frozen = frozen and (held.all_frozen or always)
                _note_flags(held, Const(not frozen) if always else Unknown())


def _is_always(run: Run, module: str) -> bool:
    """Whether the code that runs now runs whenever a module exists.

    A guard is no condition if the module was built under it, too.
    """
    if not run.guards:
        return True
    built = run.trace.built(module)
    known = built.guards if built is not None else ()
    return all(any(entry.guard is one for one in known) for entry in run.guards)


def frozen_parameters(run: Run, module: ModuleValue) -> Iterator[KnownParameter]:
    """The known parameters of a module, parts included, that are certainly frozen now."""
    for parameter in parameters_below(run, module):
        owner = run.objects.get(parameter.owner)
        if isinstance(owner, ModuleValue) and owner.all_frozen:
            yield parameter


def parameters_unfrozen_by(
    run: Run, modules: Iterable[ModuleValue], value: Value | None, *, wholly: bool = True
) -> frozenset[KnownParameter]:
    """The frozen parameters of modules that a new value of `requires_grad` certainly unfreezes.

    wholly: whether it is set on all parameters of the modules.
    """
    if not wholly or not (value is None or constant(value) is True):
        return frozenset()
    return frozenset(one for module in modules for one in frozen_parameters(run, module))


def are_all(parameters: ParametersOf) -> bool:
    """Whether an element of a loop stands for all parameters of its modules, one after another."""
    chosen = parameters.name or parameters.filtered_by or parameters.by_name or parameters.left_out
    return parameters.each and not (chosen or parameters.derived or parameters.trainable)


def note_construction(run: Run, module: ModuleValue) -> None:
    """The constructor of a module is done, and it alone gave the module parameters."""
    info = run.trace.modules[module.id]
    if run.guards or info.escaped or not (info.frozen and info.children_known):
        return
    module.all_frozen = module.some_frozen and all(
        (module.id, name) in run.registered_buffers or _has_no_gradient(run, value)
        for name, value in module.attributes.items()
    )


def _note_flags(module: ModuleValue, flag: Value) -> None:
    """The parameters that a module has made for itself get a flag `requires_grad`."""
    for value in module.attributes.values():
        if is_new_parameter(value):
            value.args["requires_grad"] = flag


def note_requires_grad(run: Run, parameter: LibraryObject, value: Value) -> None:
    """`requires_grad` is set on an `nn.Parameter` that the program has made."""
    parameter.args["requires_grad"] = Unknown() if run.guards else value
    if constant(value) is not False:
        holders = [
            held
            for held in run.objects.values()
            if isinstance(held, ModuleValue) and held.some_frozen
            if any(one is parameter for one in held.attributes.values())
        ]
        doubt_frozen(run, holders)


def _has_no_gradient(run: Run, value: Value) -> bool:
    """Whether an attribute of a module is certainly no parameter or module that is trained."""
    if isinstance(value, ModuleValue):
        info = run.trace.modules[value.id]
        bare = info.own_parameters is False and info.children_known and not info.children
        return value.all_frozen or (bare and not info.escaped)
    if is_new_parameter(value):
        return constant(value.get("requires_grad")) is False
    if isinstance(value, Sequence):
        return all(isinstance(one, Const) for one in value.items)
    return isinstance(value, Const)


def freeze_parameters(run: Run, parameters: ParametersOf, value: Value) -> None:
    """`requires_grad` is set on all or some of the parameters."""
    if parameters.name and any(child_values(run, module) for module in parameters.modules):
        return  # the own parameter of a module says nothing about its submodules
    if not (isinstance(value, Const) and value.value is True):
        # True does not undo an earlier False: it may be set on another parameter.
        set_frozen(run, parameters.modules, True, wholly=parameters.each)
        if isinstance(value, NameTest) and not parameters.filtered_by:
            _train_named(run, parameters.modules, value)
    if not (isinstance(value, Const) and value.value is False) or parameters.filtered_by:
        doubt_frozen(run, parameters.modules)


def _train_named(run: Run, modules: Iterable[ModuleValue], test: NameTest) -> None:
    """The parameters for whose own name, or the name of a module around them, a test is true have
    gradients, whatever holds that module."""
    parts = {part for module in modules for part in run.trace.submodules(module.id)}
    for part in parts:
        held = run.objects.get(part)
        if isinstance(held, ModuleValue):
            names = [name for name, one in held.attributes.items() if is_new_parameter(one)]
            if names and all(map(test.holds_for, names)):
                run.trace.modules[part].frozen = False
    for part in _modules_with_names(run, parts, test):
        for below in run.trace.submodules(part):
            run.trace.modules[below].frozen = False


def _modules_with_names(run: Run, parts: set[str], test: NameTest) -> set[str]:
    """The modules for whose every name in their parents a test is true."""
    named: dict[str, list[str]] = {}
    for part in parts:
        for name, child in run.trace.modules[part].children.items():
            named.setdefault(child, []).append(name)
    return {part for part, names in named.items() if all(map(test.holds_below, names))}


def doubt_frozen(run: Run, modules: Iterable[ModuleValue]) -> None:
    """Forget that parameters of these modules are certainly frozen."""
    for module in modules:
        for part in run.trace.submodules(module.id):
            held = run.objects.get(part)
            if isinstance(held, ModuleValue):
                held.some_frozen = held.all_frozen = False
        doubt_wholly_frozen(run, module)


def doubt_wholly_frozen(run: Run, module: ModuleValue) -> None:
    """Forget that a module, its submodules and its parents are completely frozen."""
    for other, held in run.objects.items():
        if isinstance(held, ModuleValue) and held.all_frozen:
            if run.trace.related(other, module.id):
                held.all_frozen = False


def doubt_if_given(run: Run, module: ModuleValue, given: Iterable[ModuleValue]) -> None:
    """Forget that a module is completely frozen if it gets a part or a parameter that is not."""
    parts = list(given)
    if module.all_frozen and not (parts and all(one.all_frozen for one in parts)):
        doubt_wholly_frozen(run, module)


# The index of the event that made a module with trainable adapters around a frozen model.
TRAINED_SINCE = "*trained adapters"


def has_trained_adapters(run: Run, model: ModuleValue) -> bool:
    """Whether frozen layers in a model certainly have trainable adapters now."""
    parts = (run.objects.get(part) for part in run.trace.submodules(model.id))
    return any(isinstance(part, ModuleValue) and _trains_adapters(run, part) for part in parts)


def _trains_adapters(run: Run, module: ModuleValue) -> bool:
    since = constant(module.attributes.get(TRAINED_SINCE))
    if not isinstance(since, int):
        return False
    family = {*run.trace.submodules(module.id), *run.trace.ancestors(module.id)}
    for event in run.trace.events[since + 1 :]:
        if isinstance(event, Escaped) and event.module in family:
            return False
        if isinstance(event, RequiresGradSet) and family & set(event.modules):
            return False
    return True

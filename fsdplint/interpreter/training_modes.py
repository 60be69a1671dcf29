"""Whether modules are in training mode, where it makes a difference.

A module of a class of the project or of torch.nn is in training mode when it is made. From there on
its mode is known if the program sets it by `train()` and `eval()` of known modules, and never reads
it: a program that reads `module.training` may restore it in ways of its own, unless it only shows
or asserts it. Library functions may return models in evaluation mode.
"""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import ModuleValue, Unknown, constant
from fsdplint.source.positions import descend
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.enclosing import ancestors

_BY_MODE = re.compile(r"(Alpha|FeatureAlpha)?Dropout[123]?d?|(Sync)?BatchNorm(1d|2d|3d)?")


DROPOUT = "dropout"  # that certainly sets elements to zero
STATISTICS = "statistics"


def computed_by_mode(name: str, call: Call) -> str:
    """What a layer of torch.nn computes in training mode alone: "dropout", "perhaps dropout" or
    "statistics"; "" if its mode makes no difference."""
    if not _BY_MODE.fullmatch(name):
        return ""
    if "Dropout" not in name:
        return STATISTICS
    chance = call.arg(0, "p")
    if chance is None:
        return f"perhaps {DROPOUT}" if call.open else DROPOUT
    if isinstance(chance, Unknown) and chance.default is not None:
        chance = chance.default
    value = constant(chance)
    return "" if value == 0 else DROPOUT if value is not None else f"perhaps {DROPOUT}"


def note_attribute(module: ModuleValue, name: str) -> None:
    """The program sets an attribute, which may be `p` of a dropout: it may set it back later."""
    if name == "p" and DROPOUT in module.by_mode:
        module.by_mode = f"perhaps {DROPOUT}"


def drops_while_frozen(run: Run, module: ModuleValue) -> bool:
    """Whether a module has a dropout and certainly no parameter that is trained."""
    parts = run.trace.submodules(module.id)
    held = [one for part in parts if isinstance(one := run.objects.get(part), ModuleValue)]
    return any(_drops(run, one) for one in held) and is_frozen(run, module)


def _drops(run: Run, module: ModuleValue) -> bool:
    """Whether a module is a dropout that sets elements to zero now."""
    return module.by_mode == DROPOUT and current_mode(run, module) is True


def own_statistics(run: Run, module: ModuleValue) -> str:
    """A BatchNorm in a module that follows the inputs of the rank; "" if there is none.

    It certainly is in training mode, and no SyncBatchNorm.
    """
    for part in run.trace.submodules(module.id):
        held = run.objects.get(part)
        if isinstance(held, ModuleValue) and held.by_mode == STATISTICS:
            if mode_of(run, held) is True and "Sync" not in (held.library_class or ""):
                return part
    return ""


def is_repeated(run: Run, node: cst.CSTNode) -> bool:
    """Whether a comprehension calls a model with the same input again and again, as for a
    measure of its uncertainty: `[model(batch) for _ in range(8)]`."""
    comprehensions = cst.GeneratorExp | cst.ListComp
    around = next(
        (one for one in ancestors(run.source, node) if isinstance(one, comprehensions)), None
    )
    if around is None or not isinstance(node, cst.Call):
        return False
    targets = {one.value for one in descend(around.for_in.target) if isinstance(one, cst.Name)}
    read = (one.value for arg in node.args for one in descend(arg) if isinstance(one, cst.Name))
    return targets.isdisjoint(read)


def drops_alone(run: Run, module: ModuleValue) -> bool:
    """Whether a module has a dropout, and no layer whose statistics follow its inputs."""
    parts = [run.objects.get(part) for part in run.trace.submodules(module.id)]
    held = [one for one in parts if isinstance(one, ModuleValue)]
    follows = any(one.by_mode == STATISTICS for one in held)
    return not follows and any(_drops(run, one) for one in held)


def frozen_in_training(run: Run, module: ModuleValue, kind: str) -> str:
    """The outermost frozen part of a module all of whose layers of a kind are in training mode.

    kind: that of the layers, as `by_mode` has it. The result is "" if there is no such part, or
        the module itself is frozen.
    """
    if not run.modes_known or is_frozen(run, module):
        return ""
    for part in run.trace.submodules(module.id):
        held = run.objects.get(part)
        if isinstance(held, ModuleValue) and is_frozen(run, held) and _trains(run, held, kind):
            return part
    return ""


def _trains(run: Run, module: ModuleValue, kind: str) -> bool:
    """Whether a module has layers of a kind, which are in training mode, and weights in others.

    A SyncBatchNorm is left out: it has the same statistics on all ranks.
    """
    parts = [run.objects.get(part) for part in run.trace.submodules(module.id)]
    held = [one for one in parts if isinstance(one, ModuleValue)]
    layers = [one for one in held if one.by_mode == kind]
    weights = [one for one in held if run.trace.modules[one.id].own_parameters is True]
    if not layers or all(one in layers for one in weights):
        return False
    return all(
        mode_of(run, one) is True and "Sync" not in (one.library_class or "") for one in layers
    )


def is_frozen(run: Run, module: ModuleValue) -> bool:
    """Whether none of the parameters of a module certainly has a gradient."""
    while not module.all_frozen and module.inner is not None:
        module = module.inner
    infos = [run.trace.modules[part] for part in run.trace.submodules(module.id)]
    known = all(one.children_known and one.own_parameters is not None for one in infos)
    return module.all_frozen or (known and all(one.frozen for one in infos if one.own_parameters))


def set_mode(run: Run, module: ModuleValue, training: bool | None) -> None:
    """A module and its submodules are in this mode now; None if it is not known."""
    for part in run.trace.submodules(module.id):
        run.modes[part] = training


def forget_modes(run: Run) -> None:
    """Some module, which is not known, is in another mode now."""
    run.modes.clear()
    run.first_modes_known = False


def note_mode_read(run: Run, node: cst.CSTNode) -> None:
    """The program reads the mode of a module outside of its forward."""
    if not run.calling and not _is_only_shown(run, node):
        run.modes_known = False


def _is_only_shown(run: Run, node: cst.CSTNode) -> bool:
    """Whether an expression becomes text or is asserted, so that nothing can restore it."""
    around = run.source.parent(node)
    while isinstance(around, cst.UnaryOperation | cst.Comparison | cst.BooleanOperation):
        around = run.source.parent(around)
    if isinstance(around, cst.Arg):
        call = run.source.parent(around)
        shown = isinstance(call, cst.Call) and dotted_name(call.func) == "print"
        return shown and around.keyword is None
    return isinstance(around, cst.FormattedStringExpression | cst.Assert)


def note_mode_set(run: Run) -> None:
    """The program assigns to the mode of a module."""
    if not run.calling:
        run.modes_known = False


def current_mode(run: Run, module: ModuleValue) -> bool | None:
    """Whether a module is in training mode; None if it is not known."""
    if not run.modes_known:
        return None
    while module.inner is not None:
        module = module.inner
    own = module.cls is not None or (module.library_class or "").startswith("torch.nn.")
    made = True if own and run.first_modes_known else None
    return run.modes.get(module.id, made)


def acts_by_mode(run: Run, module: ModuleValue) -> bool:
    """Whether the mode of a module makes a difference, as far as its forward was executed."""
    parts = run.trace.submodules(module.id)
    held = (run.objects.get(part) for part in parts)
    return any(
        isinstance(one, ModuleValue) and (one.by_mode or one.id in run.acting_modules)
        for one in held
    )


def mode_of(run: Run, module: ModuleValue) -> bool | None:
    """Whether a module is in training mode; None if it is not known, or makes no difference."""
    return current_mode(run, module) if acts_by_mode(run, module) else None

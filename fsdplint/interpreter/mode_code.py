"""Code in the forward of modules of the program that has an effect in training mode alone.

A test of the mode, `if self.training:`, guards such code if it changes an attribute of the module
in place, or draws random numbers. `F.dropout(x, 0.1, self.training)` sets elements to zero. Code
that saves memory or returns another output is left out: it may make no difference to the training.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.method_names import attribute_name
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Method, ModuleValue, Symbol, Unknown, Value

_DRAWS = frozenset("bernoulli normal rand rand_like randint randint_like randn randn_like".split())
_DROPOUT = "torch.nn.functional.dropout"
_USUAL_CHANCE = 0.5


def module_of_mode(run: Run, value: Value) -> ModuleValue | None:
    """The module whose mode a value is: `module.training`."""
    if not isinstance(value, Method) or value.name != "training":
        return None
    module = run.settle(value.receiver)
    return module if isinstance(module, ModuleValue) else None


@contextmanager
def in_mode_of(run: Run, module: ModuleValue | None) -> Iterator[None]:
    """Execute code that runs in the training mode of a module alone."""
    outer = run.mode_guard
    run.mode_guard = module or outer
    try:
        yield
    finally:
        run.mode_guard = outer


def note_call(run: Run, function: Value, call: Call) -> None:
    """Note a call that acts in training mode alone."""
    if isinstance(function, Symbol) and function.name == _DROPOUT:
        _note_dropout(run, call)
    module = run.mode_guard
    if module is None:
        return
    if isinstance(function, Symbol):
        library, _, name = function.name.rpartition(".")
        acts = library == "torch" and name in _DRAWS
    else:
        changed, name = _receiver(run, function)
        acts = name.endswith("_") and not name.startswith("_") and _has(run, module, changed)
    if acts:
        run.acting_modules.add(module.id)


def _receiver(run: Run, function: Value) -> tuple[Value | None, str]:
    """What a method in place would change, and the name of the method."""
    if isinstance(function, Method):
        return run.settle(function.receiver), function.name
    if isinstance(function, Unknown) and function.owner is not None:
        return function.owner, attribute_name(function)
    return None, ""


def note_update(run: Run, target: cst.BaseExpression, value: Value) -> None:
    """Note an assignment in place, `self.load += x`, in training mode alone.

    value: that of the target before.
    """
    module = run.mode_guard
    if module is not None and (_has(run, module, value) or _is_attribute(run, module, target)):
        run.acting_modules.add(module.id)


def _is_attribute(run: Run, module: ModuleValue, node: cst.BaseExpression) -> bool:
    """Whether code is an attribute of a module, or an element of one."""
    while isinstance(node, cst.Subscript):
        node = node.value
    if isinstance(node, cst.Attribute) and node.attr.value == "data":
        node = node.value
    return isinstance(node, cst.Attribute) and run.evaluations.get(node.value) is module


def _has(run: Run, module: ModuleValue, value: Value | None) -> bool:
    """Whether a value is an attribute of a module."""
    if value is None or isinstance(value, Const):
        return False
    return any(run.settle(one) is value for one in module.attributes.values())


def _note_dropout(run: Run, call: Call) -> None:
    """Note a functional dropout that the mode of a module switches."""
    switch = call.arg(2, "training")
    module = module_of_mode(run, run.settle(switch)) if switch is not None else None
    given = call.arg(1, "p")
    chance = run.settle(given) if given is not None else Const(_USUAL_CHANCE)
    if isinstance(chance, Unknown) and chance.default is not None:
        chance = chance.default
    number = chance.value if isinstance(chance, Const) else 0
    if module is not None and isinstance(number, int | float) and number > 0:
        run.acting_modules.add(module.id)

"""Work that shows nothing: code that is executed again and again, without any effect on a model.

A step shows something if it executes a statement for the first time in the run, makes a module, or
adds an event of the contract. A dataset that a program sets up again for each of its parts, or a
recursive report about the parameters, can use up all the steps of a run and show nothing. So after
many such steps, functions whose calls take many steps are not executed until something new is
shown. Their results are unknown, and what they may have changed is forgotten.
"""

from __future__ import annotations

from fsdplint.interpreter.escape import modules_in
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Dict,
    Function,
    Instance,
    Method,
    ModuleValue,
    OptimizerValue,
    Partial,
    Sequence,
    Unknown,
    Value,
)
from fsdplint.syntax.attribute_targets import assigned_attributes

MAX_STEPS_WITHOUT_EFFECT = 3_000  # steps in a row that show nothing
CHEAP = 100  # steps of a call that is executed even then: its result may decide a test

# Values whose effects are not known, or are of interest.
_HAS_EFFECTS = (Bound, Class, Function, Method, ModuleValue, OptimizerValue, Partial)


def has_no_effect(run: Run, function: Function, given: list[Value]) -> bool:
    """Whether a call of a function is not worth its steps: it costs many, and none of the last
    ones showed anything."""
    if run.steps - run.last_new < MAX_STEPS_WITHOUT_EFFECT or function.node not in run.costly:
        return False
    if function.scope.kind == "function":
        return False  # it may have an effect on the variables around it
    return not any(_may_have_effects(run, value) for value in given)


def _may_have_effects(run: Run, value: Value) -> bool:
    value = run.settle(value)
    if isinstance(value, Unknown):
        return value.part_of is not None
    return isinstance(value, _HAS_EFFECTS) or bool(modules_in(run, value))


def note_cost(run: Run, function: Function, first_step: int) -> None:
    """Note whether a call of a function, which began at a step, took many."""
    if run.steps - first_step > CHEAP:
        run.costly.add(function.node)


def forget(run: Run, function: Function, given: list[Value]) -> None:
    """Forget what a function that is not executed may have changed in its arguments."""
    for value in map(run.settle, given):
        if isinstance(value, Dict):
            value.items = dict.fromkeys(value.items, Unknown())
            value.may_have_more()
            run.changes += 1
        elif isinstance(value, Sequence):
            value.items, value.open = [Unknown() for _ in value.items], True
            run.changes += 1
        elif isinstance(value, Instance):
            for target in assigned_attributes(function.node, augmented=True):
                value.attributes[target.attr.value] = Unknown()
                run.changes += 1

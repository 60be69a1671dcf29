"""Code in the forward of modules of the program that has an effect in training mode alone.

`if self.training:` guards such code if it changes an attribute of the module in place, or draws
random numbers. `F.dropout(x, 0.1, self.training)` sets elements to zero. A branch that saves memory
or returns another output is left out: it may make no difference to the training.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.own_parts import methods_from, receiver_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Class, Const, ModuleValue, Unknown, Value
from fsdplint.source.positions import descend
from fsdplint.syntax.dotted import dotted_name

_DRAWS = frozenset("bernoulli normal rand rand_like randint randint_like randn randn_like".split())


def acts_by_mode(run: Run, module: ModuleValue) -> bool:
    """Whether the forward of a module itself certainly does more in training mode."""
    if module.cls is None:
        return False
    if module.cls not in run.classes_by_mode:
        run.classes_by_mode[module.cls] = _acts(module.cls)
    acts, chances = run.classes_by_mode[module.cls]
    return acts or any(_is_positive(run, module, one) for one in chances)


def _acts(cls: Class) -> tuple[bool, list[str | float]]:
    """Whether code of a class acts in training mode alone, and the chances of its dropouts.

    A chance is a number, or the name of the attribute that has it.
    """
    chances: list[str | float] = []
    acts = False
    for method in methods_from(cls, ("forward",)):
        receiver = receiver_of(method)
        for node in descend(method.body):
            if isinstance(node, cst.If) and _is_training(node.test, receiver):
                acts = acts or any(_changes(one, receiver) for one in descend(node.body))
            elif isinstance(node, cst.Call):
                chances += _chance(node, receiver)
    return acts, chances


def _is_training(test: cst.BaseExpression, receiver: str) -> bool:
    """Whether a test is `self.training`, alone."""
    return (
        isinstance(test, cst.Attribute)
        and test.attr.value == "training"
        and isinstance(test.value, cst.Name)
        and test.value.value == receiver
    )


def _changes(node: cst.CSTNode, receiver: str) -> bool:
    """Whether code changes an attribute in place or draws random numbers."""
    if isinstance(node, cst.AugAssign):
        return _is_own(node.target, receiver)
    if not isinstance(node, cst.Call):
        return False
    name = dotted_name(node.func)
    if name.startswith("torch.") and name.rpartition(".")[2] in _DRAWS:
        return True
    function = node.func
    if not isinstance(function, cst.Attribute) or not function.attr.value.endswith("_"):
        return False
    return not function.attr.value.startswith("_") and _is_own(function.value, receiver)


def _is_own(node: cst.BaseExpression, receiver: str) -> bool:
    while isinstance(node, cst.Subscript):
        node = node.value
    if isinstance(node, cst.Attribute) and node.attr.value == "data":
        node = node.value
    own = isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name)
    return own and isinstance(node, cst.Attribute) and dotted_name(node.value) == receiver


def _chance(call: cst.Call, receiver: str) -> Iterator[str | float]:
    """The chance of a functional dropout that the mode of the module switches."""
    name = dotted_name(call.func)
    if not name.startswith(("F.", "torch.nn.functional.", "nn.functional.")):
        return
    if name.rpartition(".")[2] != "dropout":
        return
    given = {arg.keyword.value: arg.value for arg in call.args if arg.keyword is not None}
    places = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
    training = given.get("training") or (places[2] if len(places) > 2 else None)
    if training is None or not _is_training(training, receiver):
        return
    chance = given.get("p") or (places[1] if len(places) > 1 else None)
    if chance is None:
        yield 0.5
    elif isinstance(chance, cst.Float | cst.Integer):
        yield float(chance.evaluated_value)
    elif isinstance(chance, cst.Attribute) and _is_own(chance, receiver):
        yield chance.attr.value


def _is_positive(run: Run, module: ModuleValue, chance: str | float) -> bool:
    if not isinstance(chance, str):
        return chance > 0
    value: Value = run.settle(module.attributes.get(chance, Unknown()))
    if isinstance(value, Unknown) and value.default is not None:
        value = value.default
    number = value.value if isinstance(value, Const) else 0
    return isinstance(number, int | float) and number > 0

"""`ignored_modules` and `ignored_states`: parameters that are not sharded.

Neither version shards them or reduces their gradients. In FSDP2 they are plain tensors among
DTensors, and `clip_grad_norm_` and optimizers that work on lists of tensors cannot mix the two.
Frozen parameters have no gradients, so they cause no error.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.interpreter.program_arguments import is_literal_index
from fsdplint.interpreter.torch_values import ParametersOf, TensorValue
from fsdplint.interpreter.values import Const, ModuleValue, Unknown, Value
from fsdplint.interpreter.values import Sequence as Items
from fsdplint.migration.analysis.frozen_parts import have_same_frozen_parts
from fsdplint.migration.analysis.parameters import (
    MAX_DEPTH,
    calls_with,
    default_of,
    function_of_parameter,
)
from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import IGNORED_MIXED, IGNORED_PERHAPS_TRAINED
from fsdplint.migration.constructor import ignored_training
from fsdplint.migration.constructor.module_lists import members_of
from fsdplint.migration.context import Migration, expression
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import elements, is_constant

MOVING = {
    "to",
    "cuda",
    "cpu",
    "half",
    "bfloat16",
    "float",
    "eval",
    "train",
}  # give the module itself


def ignored_params(
    migration: Migration,
    source: Source,
    value: cst.BaseExpression,
    argument: str,
    modules: bool,
) -> str:
    """The text of `ignored_params`, "" if nothing is ignored.

    argument: the name of FSDP1's argument. modules: whether the value holds modules, not parameters.

    Raises:
        Blocked: the program may train the parameters.
    """
    if is_constant(value, "None") or elements(value) == []:
        return ""
    display = _display(source, value)
    if display is not value and elements(display) == [] and _all_empty(migration.values(value)):
        return ""
    text = ignored_text(migration, source, value)
    function = function_of_parameter(source, value)
    if function is not None and isinstance(value, cst.Name):
        if _never_given(migration, source, value):
            return members_of(text, "parameters") if modules else f"set({text})"
        if modules and _frozen_calls(migration, source, function, value, argument):
            return members_of(text, "parameters")
    if not modules and _takes_frozen(display):
        return text if isinstance(display, cst.SetComp) else f"set({text})"
    if not have_same_frozen_parts(migration, source, value):
        raise Blocked(source, value, IGNORED_PERHAPS_TRAINED(argument=argument))
    if modules and _frozen_modules(migration, source, display):
        return members_of(text, "parameters")
    if modules and holds_modules(migration, value) and not _selects(source, display):
        if all(map(_is_frozen, migration.values(value))):
            return members_of(text, "parameters")
    if not modules and _frozen_parameters(migration, value) and not _selects(source, display):
        return f"set({_without_list(text)})"
    if ignored_training.is_supported(migration):
        ignored_training.step_singly(migration)
        migration.note(
            "ignored parameters stay plain tensors, which the program trains beside sharded ones",
            source,
            value,
            detail="`clip_grad_norm_`, a gradient scaler, and optimizers with `foreach=True` or "
            "`fused=True` do not take both together.",
        )
        return members_of(text, "parameters") if modules else f"set({_without_list(text)})"
    place = ignored_training.mixing(migration)
    if place:
        raise Blocked(source, value, IGNORED_MIXED(argument=argument, place=place))
    raise Blocked(source, value, IGNORED_PERHAPS_TRAINED(argument=argument))


def _display(source: Source, value: cst.BaseExpression) -> cst.BaseExpression:
    """The value of a variable that is assigned once, else the expression itself."""
    found = definitions(source, value) if isinstance(value, cst.Name) else None
    return found[0].value if found and len(found) == 1 else value


def ignored_text(migration: Migration, source: Source, value: cst.BaseExpression) -> str:
    """The text of what is ignored, with `or ()` if it may be None."""
    text = expression(migration, source, value)
    if not _may_be_none(migration, source, value):
        return text
    whole = isinstance(value, cst.Name | cst.Attribute | cst.Subscript | cst.Call)
    return f"{text} or ()" if whole else f"({text}) or ()"


def _may_be_none(migration: Migration, source: Source, value: cst.BaseExpression) -> bool:
    """Whether some run, or a definition of the variable, gives None."""
    if any(isinstance(one, Const) and one.value is None for one in migration.values(value)):
        return True
    if not isinstance(value, cst.Name):
        return _gives_none(value)
    function = function_of_parameter(source, value)
    default = default_of(function, value.value) if function is not None else None
    given = [one.value for one in definitions(source, value) or ()]
    return any(map(_gives_none, given)) or (default is not None and is_constant(default, "None"))


def _gives_none(node: cst.BaseExpression) -> bool:
    """Whether an expression is None, or is None under a condition."""
    if isinstance(node, cst.IfExp):
        return _gives_none(node.body) or _gives_none(node.orelse)
    return is_constant(node, "None")


def holds_modules(migration: Migration, value: cst.BaseExpression) -> bool:
    """Whether a value is certainly a list of modules, which `ignored_states` also accepts."""
    values = migration.values(value)
    return bool(values) and all(
        isinstance(one, Items)
        and bool(one.items)
        and all(isinstance(item, ModuleValue) for item in one.items)
        for one in values
    )


def _all_empty(values: Sequence[Value]) -> bool:
    """Whether values are certainly None or empty."""
    return bool(values) and all(map(_is_empty, values))


def _is_empty(value: Value) -> bool:
    if isinstance(value, Items):
        return not value.items and not value.open
    return isinstance(value, Const) and value.value is None


def _is_frozen(value: Value) -> bool:
    """Whether a value holds certainly nothing but frozen modules."""
    if isinstance(value, Items) and not value.open:
        return all(isinstance(one, ModuleValue) and one.all_frozen for one in value.items)
    return _is_empty(value)


def _frozen_parameters(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether an expression has parameters of frozen modules only, in every configuration.

    A variable that holds an iterator does not count: the migration may read it more than once.
    """
    values = migration.values(node)
    if isinstance(node, cst.Name) and any(
        isinstance(one, ParametersOf) and one.taken_at is None for one in values
    ):
        return False
    return bool(values) and all(map(_of_frozen_modules, values))


def _selects(source: Source, node: cst.BaseExpression) -> bool:
    """Whether an index that is no literal chooses a part.

    The interpreter gives one element as the value of all that the index may choose, so the value
    says nothing about the others.
    """
    return any(
        isinstance(one, cst.Subscript) and not is_literal_index(one) for one in source.descend(node)
    )


def _of_frozen_modules(value: Value) -> bool:
    if isinstance(value, Items):
        return not value.open and all(map(_of_frozen_modules, value.items))
    if not isinstance(value, ParametersOf) or value.named:
        return False
    known = value.complete or bool(value.name)
    return known and all(module.all_frozen for module in value.modules)


def _without_list(text: str) -> str:
    """The argument of `list(...)`, if it is the whole text."""
    node = cst.parse_expression(text)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
        if node.func.value in ("list", "set", "tuple") and len(node.args) == 1:
            return cst.Module([]).code_for_node(node.args[0].value)
    return text


def _frozen_calls(
    migration: Migration,
    source: Source,
    function: cst.FunctionDef,
    name: cst.Name,
    argument: str,
) -> bool:
    """Whether each call of a function gives a parameter nothing but frozen modules.

    Raises:
        Blocked: a call gives it modules that may be trained.
    """
    sources = migration.program.sources.values()
    found = list(calls_with(sources, source, function, name.value))
    if not found or any(call is None for _, call, _, _ in found):
        return False
    for other, call, given, has_rest in found:
        if has_rest:
            return False
        if given is None or call in migration.undecided_nodes:
            continue
        values = migration.values(given.value)
        if not values or not all(map(_is_frozen, values)):
            if _frozen_modules(migration, other, _display(other, given.value)):
                continue
            raise Blocked(other, given.value, IGNORED_PERHAPS_TRAINED(argument=argument))
    return True


def _never_given(
    migration: Migration, source: Source, value: cst.BaseExpression, depth: int = 0
) -> bool:
    """Whether an expression is empty: None, or a parameter that no call gives anything else.

    The values that it had show the calls by any name. The calls that no run reached are found by
    the name of the function.
    """
    if is_constant(value, "None") or elements(value) == []:
        return True
    if not isinstance(value, cst.Name) or not all(map(_is_empty, migration.values(value))):
        return False
    function = function_of_parameter(source, value)
    default = default_of(function, value.value) if function is not None else None
    if function is None or default is None or depth > MAX_DEPTH:
        return False
    if not _never_given(migration, source, default, depth + 1):
        return False
    sources = migration.program.sources.values()
    for other, _, given, has_rest in calls_with(sources, source, function, value.value):
        if has_rest:
            return False
        if given is not None and not _never_given(migration, other, given.value, depth + 1):
            return False
    return True


def _frozen_modules(migration: Migration, source: Source, node: cst.BaseExpression) -> bool:
    """Whether a display holds modules that are frozen in every configuration."""
    parts = elements(node)
    return bool(parts) and all(_is_frozen_module(migration, source, part) for part in parts or ())


def _is_frozen_module(migration: Migration, source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression is a frozen module, or a part of one: `model.layers`, `model.head.to(device)`.

    The parts of a model of a library are unknown, and frozen as the model is.
    """
    node = _display(source, node)
    while True:
        values = migration.values(node)
        if values and not all(isinstance(value, Unknown | TensorValue) for value in values):
            return all(isinstance(value, ModuleValue) and value.all_frozen for value in values)
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if node.func.attr.value not in MOVING:
                return False
            node = node.func.value
        elif isinstance(node, cst.Attribute):
            node = node.value
        else:
            return False


def _takes_frozen(node: cst.BaseExpression) -> bool:
    """Whether a comprehension is `[p for p in ... if not p.requires_grad]`."""
    if not isinstance(node, cst.ListComp | cst.SetComp | cst.GeneratorExp):
        return False
    element = node.elt
    return isinstance(element, cst.Name) and any(
        isinstance(test.test, cst.UnaryOperation)
        and isinstance(test.test.operator, cst.Not)
        and isinstance(test.test.expression, cst.Attribute)
        and test.test.expression.attr.value == "requires_grad"
        and isinstance(test.test.expression.value, cst.Name)
        and test.test.expression.value.value == element.value
        for test in node.for_in.ifs
    )

"""`ignored_modules` and `ignored_states`: parameters that are not sharded.

Neither version shards them or reduces their gradients. In FSDP2 they are plain tensors among
DTensors, and `clip_grad_norm_` and optimizers that work on lists of tensors cannot mix the two.
Frozen parameters have no gradients, so they cause no error.
"""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.variables import definitions, home_of
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import IGNORED_PERHAPS_TRAINED
from fsdplint.migration.context import Migration, expression
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, elements, is_constant


def ignored_params(
    migration: Migration, source: Source, value: cst.BaseExpression, modules: bool
) -> str:
    """The text of `ignored_params`, "" if nothing is ignored.

    modules: whether the value holds modules, not parameters.

    Raises:
        Blocked: the program may train the parameters.
    """
    if is_constant(value, "None") or elements(value) == []:
        return ""
    text = expression(migration, source, value)
    display = value
    if isinstance(value, cst.Name):
        found = definitions(source, value)
        if not found and _never_given(migration, source, value):
            if not modules:
                return f"set({text})"
            return _parameters_of(text)
        if found and len(found) == 1:
            display = found[0].value
    if not modules and _takes_frozen(display):
        return text if isinstance(display, cst.SetComp) else f"set({text})"
    if _frozen_modules(migration, display):
        return _parameters_of(text)
    name = "ignored_modules" if modules else "ignored_states"
    reason = IGNORED_PERHAPS_TRAINED(argument=name)
    raise Blocked(source, value, reason)


def _parameters_of(modules: str) -> str:
    """The set of the parameters of some modules."""
    one = "part" if re.search(r"\bmodule\b", modules) else "module"
    return f"{{p for {one} in {modules} for p in {one}.parameters()}}"


def _frozen_modules(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether a display holds modules that are frozen in every configuration."""
    parts = elements(node)
    values = [migration.values(part) for part in parts or ()]
    return bool(values) and all(
        found and all(isinstance(value, ModuleValue) and value.all_frozen for value in found)
        for found in values
    )


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


def _never_given(migration: Migration, source: Source, name: cst.Name, depth: int = 0) -> bool:
    """Whether a parameter is empty by default, and no call passes anything else."""
    function = home_of(source, name)
    if not isinstance(function, cst.FunctionDef) or depth > 3:
        return False
    names = [p.name.value for p in function.params.params]
    default = next((p.default for p in function.params.params if p.name.value == name.value), None)
    if default is None or not (is_constant(default, "None") or elements(default) == []):
        return False
    for other in migration.program.sources.values():
        for node in other.descend(other.tree):
            if not isinstance(node, cst.Call) or _called_name(node) != function.name.value:
                continue
            named, rest = arguments(node, names)
            given = named.get(name.value)
            if rest:
                return False
            if given is None:
                continue
            argument = given.value
            if not isinstance(argument, cst.Name):
                return False
            if not _never_given(migration, other, argument, depth + 1):
                return False
    return True


def _called_name(node: cst.Call) -> str:
    if isinstance(node.func, cst.Attribute):
        return node.func.attr.value
    return node.func.value if isinstance(node.func, cst.Name) else ""

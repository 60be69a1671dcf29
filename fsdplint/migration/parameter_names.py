"""Tests of the names of parameters in loops over a wrapped model.

With use_orig_params=False, FSDP1 names all parameters `_flat_param`, so a test for a bias never holds. With
FSDP2 it applies as it is written.
"""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import PARAMETERS
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.layout import descend

Calls = list[tuple[Source, cst.Call]]
TESTED = "parameters have their own names: tests of them may choose others"
FLAT_NAME = "_fsdp_wrapped_module._flat_param"
_METHODS = ("startswith", "endswith")
_OPERATORS = (cst.In, cst.NotIn, cst.Equal, cst.NotEqual)


def are_flat(calls: Calls) -> bool:
    """Whether each constructor call certainly makes flat parameters."""
    return bool(calls) and all(
        _is_false(call) and not any(arg.star for arg in call.args) for _, call in calls
    )


def _is_false(call: cst.Call) -> bool:
    """Whether `use_orig_params` is not given, or False."""
    given = arguments(call, PARAMETERS)[0].get("use_orig_params")
    return given is None or is_constant(given.value, "False")


def decide_training(source: Source) -> bool:
    """Whether names may decide what is trained, and how."""
    return bool(re.search(r"weight_decay|requires_grad|[\"']params", source.text))


def note_tests(migration: Migration) -> None:
    """Note the tests of names of flat parameters."""
    for source in migration.program.sources.values():
        if "named_parameters" not in source.text:
            continue
        for loop in nodes(source):
            name = loop_variable(migration, source, loop)
            for test in descend(loop) if name else ():
                if _tests(test, name):
                    migration.note(
                        TESTED,
                        source,
                        test,
                        detail="With use_orig_params=False FSDP1 names them `_flat_param`, so no "
                        "pattern for biases or norms matches. With FSDP2 such patterns match.",
                        unsafe=decide_training(source) and _chooses(source, loop),
                    )


def loop_variable(migration: Migration, source: Source, loop: cst.CSTNode) -> str:
    """The variable `name` of `for name, p in model.named_parameters()` for a wrapped model, or ""."""
    if not isinstance(loop, cst.For | cst.CompFor) or not isinstance(loop.target, cst.Tuple):
        return ""
    first, over = loop.target.elements[0].value, loop.iter
    if not isinstance(first, cst.Name) or not isinstance(over, cst.Call):
        return ""
    if not isinstance(over.func, cst.Attribute) or over.func.attr.value != "named_parameters":
        return ""
    if migration.wrapping_of(over.func.value) != "always":
        return ""
    around: cst.CSTNode | None = loop
    while around is not None and around not in migration.blocks.whole_parameters:
        around = source.parent(around)
    return first.value if around is None else ""


def _chooses(source: Source, loop: cst.CSTNode) -> bool:
    """Whether a loop collects parameters, or sets something of them."""
    if not isinstance(loop, cst.For):
        return True
    return bool(re.search(r"requires_grad|\.(append|add|update)\(|\]\s*=", source.code(loop)))


def _tests(node: cst.CSTNode, name: str) -> bool:
    """Whether a node is a test of a name that a flat parameter does not pass."""
    if isinstance(node, cst.Call):
        method = node.func
        if not isinstance(method, cst.Attribute) or method.attr.value not in _METHODS:
            return False
        return _is_name(method.value, name) and not any(_is_of_flat(arg.value) for arg in node.args)
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        return False
    other = node.comparisons[0]
    sides = (node.left, other.comparator)
    known = isinstance(other.operator, _OPERATORS) and not any(map(_is_of_flat, sides))
    return known and any(_is_name(side, name) for side in sides)


def _is_name(node: cst.BaseExpression, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _is_of_flat(node: cst.BaseExpression) -> bool:
    """Whether an expression is a part of the name of a flat parameter."""
    return isinstance(node, cst.SimpleString) and str(node.evaluated_value) in FLAT_NAME

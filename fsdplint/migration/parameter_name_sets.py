"""Names of parameters that are collected without FSDP1's prefix, and compared with names that have it.

`named_parameters()` of a wrapped model gives names with `_fsdp_wrapped_module.`, except in blocks of
`summon_full_params`. So no such name is in a set of names from a block, or from before the wrapping.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import definitions, home_of, reads
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.parameter_names import decide_training
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend

NOTE = (
    "parameters have their own names: names from before the wrapping, or from "
    "`summon_full_params`, are found among them"
)
DETAIL = (
    "The names that FSDP1's `named_parameters()` gives elsewhere have `_fsdp_wrapped_module.`, so "
    "none of them is among the collected names. With FSDP2 the test applies as it is written."
)
MAX_DEPTH = 3  # variables between the names and a loop
_COLLECT = ("add", "append")


def note_tests(migration: Migration) -> None:
    """Note the tests `name in names` of loops over the parameters of a wrapped model."""
    for source in migration.program.sources.values():
        if "named_parameters" not in source.text:
            continue
        for loop in nodes(source):
            if isinstance(loop, cst.For | cst.CompFor) and _has_prefix(migration, source, loop):
                _note_tests(migration, source, loop, _first(loop.target))


def _note_tests(migration: Migration, source: Source, loop: cst.CSTNode, name: str) -> None:
    for test in descend(loop):
        found = _tested_collection(test, name)
        if found is not None and _lacks_prefix(migration, source, found):
            migration.note(NOTE, source, test, detail=DETAIL, unsafe=decide_training(source))


def _has_prefix(migration: Migration, source: Source, loop: cst.For | cst.CompFor) -> bool:
    """Whether the names in a loop certainly have FSDP1's prefix."""
    call = _names(source, loop.iter, MAX_DEPTH) if _first(loop.target) else None
    return call is not None and _origin(migration, source, call) == "wrapped"


def _names(source: Source, node: cst.BaseExpression, depth: int) -> cst.Call | None:
    """The call of `named_parameters()` whose pairs are the elements of an expression."""
    if isinstance(node, cst.Name) and depth:
        values = definitions(source, node)
        return _names(source, values[0].value, depth - 1) if values and len(values) == 1 else None
    if isinstance(node, cst.ListComp | cst.GeneratorExp):
        kept = node.elt.elements[0].value if isinstance(node.elt, cst.Tuple) else None
        first = _first(node.for_in.target)
        same = kept is not None and _is_name(kept, first)
        return _names(source, node.for_in.iter, depth) if same else None
    if not isinstance(node, cst.Call):
        return None
    if isinstance(node.func, cst.Attribute):
        return node if node.func.attr.value == "named_parameters" else None
    copies = is_constant(node.func, "list") and len(node.args) == 1
    return _names(source, node.args[0].value, depth) if copies else None


def _tested_collection(node: cst.CSTNode, name: str) -> cst.Name | None:
    """The variable `names` in `name in names` or `name not in names`."""
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        return None
    other = node.comparisons[0]
    if not isinstance(other.operator, cst.In | cst.NotIn) or not _is_name(node.left, name):
        return None
    return other.comparator if isinstance(other.comparator, cst.Name) else None


def _lacks_prefix(migration: Migration, source: Source, variable: cst.Name) -> bool:
    """Whether a variable certainly holds names of parameters without the prefix."""
    home, values = home_of(source, variable), definitions(source, variable)
    if home is None or not values:
        return False
    found = [
        _is_clean(migration, source, part)
        for one in values
        for part in descend(one.value)
        if isinstance(part, cst.ListComp | cst.SetComp | cst.GeneratorExp)
    ]
    found += [
        _is_clean(migration, source, loop)
        for use in reads(source, home, variable.value)
        for loop in _collecting_loops(source, use)
    ]
    return bool(found) and all(found)


def _collecting_loops(source: Source, use: cst.Name) -> list[cst.For]:
    """The loop in which `names.add(name)` collects names."""
    method = source.parent(use)
    call = source.parent(method) if isinstance(method, cst.Attribute) else None
    if not isinstance(method, cst.Attribute) or method.attr.value not in _COLLECT:
        return []
    if not isinstance(call, cst.Call) or call.func is not method or len(call.args) != 1:
        return []
    for around in ancestors(source, call):
        if isinstance(around, cst.For) and _is_name(call.args[0].value, _first(around.target)):
            return [around]
    return []


def _is_clean(
    migration: Migration,
    source: Source,
    loop: cst.For | cst.ListComp | cst.SetComp | cst.GeneratorExp,
) -> bool:
    """Whether a loop certainly collects names as the plain model has them."""
    over = loop if isinstance(loop, cst.For) else loop.for_in
    first = _first(over.target)
    if not isinstance(loop, cst.For) and not _is_name(loop.elt, first):
        return False
    call = _names(source, over.iter, MAX_DEPTH)
    return call is not None and _origin(migration, source, call) == "plain"


def _origin(migration: Migration, source: Source, call: cst.Call) -> str:
    """Whether `named_parameters()` gives names of the "plain" model, or of the "wrapped" one; "" if it
    is not known.
    """
    model = call.func.value if isinstance(call.func, cst.Attribute) else None
    if model is None or not migration.values(model):
        return ""
    wrapping = migration.wrapping_of(model)
    if wrapping == "always":
        gathered = not migration.blocks.whole_parameters.isdisjoint(ancestors(source, call))
        return "plain" if gathered else "wrapped"
    return "plain" if wrapping == "" else ""


def _first(target: cst.BaseExpression) -> str:
    """The variable `name` of the target `name, parameter`, or ""."""
    if not isinstance(target, cst.Tuple) or not target.elements:
        return ""
    first = target.elements[0].value
    return first.value if isinstance(first, cst.Name) else ""


def _is_name(node: cst.BaseExpression, name: str) -> bool:
    return bool(name) and isinstance(node, cst.Name) and node.value == name

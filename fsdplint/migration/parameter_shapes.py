"""Tests of the number of dimensions of parameters, which choose parameter groups.

FSDP1's parameters have one dimension after wrapping, except in blocks of `summon_full_params`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import libcst as cst

from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.migration.context import Migration, is_fsdp1, nodes
from fsdplint.migration.names import PARAMETERS
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend

Calls = list[tuple[Source, cst.Call]]
SHAPE = re.compile(r"\b(?P<one>\w+)\.(?:ndim\b|dim\(\))|len\((?P<other>\w+)\.shape\)")
MAX_DEPTH = 3  # functions that call one another between a block and a test


def note_tests(migration: Migration, calls: Calls) -> None:
    """Note the tests of shapes that FSDP1 has changed."""
    keeps_parameters = all(_keeps_parameters(migration, call) for _, call in calls)
    for source in migration.program.sources.values():
        if "weight_decay" not in source.text:
            continue
        for node in nodes(source):
            if not isinstance(node, cst.Comparison) or not _by_shape(migration, source, node):
                continue
            if keeps_parameters and _is_gathered(migration, source, node, MAX_DEPTH):
                continue
            migration.note(
                "parameters have their whole shape: groups chosen by `p.dim()` may change",
                source,
                node,
                detail="FSDP1's parameters have one dimension after wrapping, so groups that are "
                "made after it put all parameters into one group. With FSDP2 weight decay applies "
                "as it is written.",
                unsafe=_is_certainly_of_fsdp1(migration, node),
            )


def are_of_fsdp1(value: object) -> bool:
    """Whether a value is parameters of a model that FSDP1 has wrapped."""
    return isinstance(value, ParametersOf) and any(is_fsdp1(m) for m in value.modules)


def _keeps_parameters(migration: Migration, call: cst.Call) -> bool:
    """Whether a model certainly has its own parameters (`use_orig_params=True`)."""
    for one in (call, *migration.blocks.enabling.get(call, ())):
        given = arguments(one, PARAMETERS)[0].get("use_orig_params")
        if given is not None:
            return is_constant(given.value, "True")
    return False


def _by_shape(migration: Migration, source: Source, node: cst.Comparison) -> bool:
    """Whether a comparison tests the dimensions of a parameter of a wrapped model."""
    match = SHAPE.search(source.code(node))
    if match is None:
        return False
    name = match["one"] or match["other"]
    found = [part for part in descend(node) if isinstance(part, cst.Name) and part.value == name]
    values = [value for part in found for value in migration.values(part)]
    if values:
        return any(are_of_fsdp1(value) for value in values)
    return name in ("p", "param", "parameter", "v")


def _is_certainly_of_fsdp1(migration: Migration, node: cst.Comparison) -> bool:
    """Whether a comparison certainly tests parameters that FSDP1 has flattened.

    In other configurations it may test those of another model, such as one that DDP wraps.
    """
    return any(are_of_fsdp1(value) for part in descend(node) for value in migration.values(part))


def _is_gathered(migration: Migration, source: Source, node: cst.CSTNode, depth: int) -> bool:
    """Whether code certainly runs in blocks of `summon_full_params` only."""
    for around in ancestors(source, node):
        if around in migration.blocks.whole_parameters:
            return True
        if isinstance(around, cst.FunctionDef | cst.Lambda):
            name = _name_of(source, around)
            if not name or not depth:
                return False
            uses = list(_uses(migration.program.sources.values(), name))
            return bool(uses) and all(
                call is not None and _is_gathered(migration, other, call, depth - 1)
                for other, call in uses
            )
    return False


def _name_of(source: Source, function: cst.FunctionDef | cst.Lambda) -> str:
    """The name of a function, or the variable of a lambda; "" if it has none."""
    if isinstance(function, cst.FunctionDef):
        return function.name.value if not function.decorators else ""
    assignment = source.parent(function)
    if not isinstance(assignment, cst.Assign) or len(assignment.targets) != 1:
        return ""
    target = assignment.targets[0].target
    return target.value if isinstance(target, cst.Name) else ""


def _uses(sources: Iterable[Source], name: str) -> Iterator[tuple[Source, cst.Call | None]]:
    """The calls of what has a name, whatever it is; None stands for any other use of the name."""
    for source in sources:
        if name not in source.text:
            continue
        for node in nodes(source):
            if not isinstance(node, cst.Name) or node.value != name:
                continue
            place = source.parent(node)
            if isinstance(place, cst.FunctionDef | cst.AssignTarget | cst.ImportAlias):
                continue
            if isinstance(place, cst.Attribute) and place.attr is node:
                node, place = place, source.parent(place)
            called = isinstance(place, cst.Call) and place.func is node
            yield source, place if isinstance(place, cst.Call) and called else None

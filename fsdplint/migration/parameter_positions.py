"""Code that chooses the parameters of a wrapped model by their positions.

With use_orig_params=False, FSDP1 has one flat parameter for each unit, the root's first. FSDP2 has all
parameters in the order of the model, so that a position names another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.migration.analysis.variables import home_of, reads
from fsdplint.migration.context import Migration, is_fsdp1
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.layout import descend, statement_of
from fsdplint.trace import OptimizerBuilt

NOTE = "parameters are chosen by position: FSDP2 has the parameters of the model in its order"
DETAIL = (
    "With use_orig_params=False FSDP1 has one flat parameter for each unit, the root's first. Choose the "
    "parameters by their modules or names, before the model is wrapped; then run this again."
)
_TRAINS = re.compile(r"[\"']params[\"']|param_groups|add_param_group|requires_grad|\.grad\.\w+_\(")


def note_positions(migration: Migration) -> None:
    """Note the places that decide by positions how flat parameters are trained."""
    optimizers = _optimizer_statements(migration)
    for source in migration.program.sources.values():
        if "parameters" not in source.text:
            continue
        for node in source.descend(source.tree):
            if any(
                _trains(source, place, optimizers) for place in _chosen(migration, source, node)
            ):
                migration.note(NOTE, source, node, detail=DETAIL, unsafe=True)


def _chosen(migration: Migration, source: Source, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The places that read what a node chooses by position from the parameters of a model."""
    match node:
        case cst.Subscript() if _is_parameters(migration, node.value):
            yield node
            yield from _reads_of_variable(source, node)
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Tuple() as names)]):
            if _is_parameters(migration, node.value):
                for element in names.elements:
                    yield from _reads_of(source, element.value)
        case cst.For() | cst.CompFor():
            yield from _counted(migration, source, node)


def _counted(
    migration: Migration, source: Source, loop: cst.For | cst.CompFor
) -> Iterator[cst.CSTNode]:
    """The reads of a number that counts the parameters of a loop, or of a value beside each."""
    over = loop.iter
    if isinstance(over, cst.Call) and isinstance(over.func, cst.Name) and over.args:
        given = [arg.value for arg in over.args]
        of_model = [one for one in given if _is_parameters(migration, one)]
        if not of_model or not isinstance(loop.target, cst.Tuple):
            return
        if over.func.value == "enumerate":
            yield from _reads_of(source, loop.target.elements[0].value)
        elif over.func.value == "zip" and len(loop.target.elements) == len(given):
            for one, element in zip(given, loop.target.elements, strict=True):
                if isinstance(one, cst.List | cst.Tuple) or is_constant(_called(one), "range"):
                    yield from _reads_of(source, element.value)
    elif isinstance(loop, cst.For) and _is_parameters(migration, over):
        for part in descend(loop.body):
            if isinstance(part, cst.AugAssign):
                yield from _reads_of(source, part.target)


def _called(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.func if isinstance(node, cst.Call) else node


def _reads_of_variable(source: Source, node: cst.BaseExpression) -> Iterator[cst.CSTNode]:
    """The reads of the variable that gets a value."""
    place = source.parent(node)
    if isinstance(place, cst.Assign) and place.value is node:
        for target in place.targets:
            yield from _reads_of(source, target.target)


def _reads_of(source: Source, target: cst.BaseExpression) -> Iterator[cst.CSTNode]:
    """The reads of a variable, in its function."""
    name = target.value if isinstance(target, cst.StarredElement) else target
    home = home_of(source, name) if isinstance(name, cst.Name) else None
    if home is not None and isinstance(name, cst.Name):
        yield from (one for one in reads(source, home, name.value) if not _is_target(source, one))


def _is_target(source: Source, name: cst.CSTNode) -> bool:
    """Whether a loop assigns a name."""
    node, parent = name, source.parent(name)
    while isinstance(parent, cst.Element | cst.Tuple):
        node, parent = parent, source.parent(parent)
    return isinstance(parent, cst.For | cst.CompFor) and parent.target is node


def _trains(source: Source, place: cst.CSTNode, optimizers: set[cst.CSTNode]) -> bool:
    """Whether a place is in a statement that makes parameter groups, or trains parameters."""
    statement = statement_of(source, place)
    if isinstance(statement, cst.BaseCompoundStatement):
        return False  # the head of a loop or a test
    return statement in optimizers or _TRAINS.search(source.code(statement)) is not None


def _optimizer_statements(migration: Migration) -> set[cst.CSTNode]:
    """The statements that build an optimizer."""
    return {
        statement_of(event.site.source, event.site.node)
        for trace in migration.program.traces
        for event in trace.of(OptimizerBuilt)
        if isinstance(event.site, NodeSite)
    }


def _is_parameters(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether an expression certainly gives the parameters of a model that FSDP1 wraps."""
    values = migration.values(node)
    return bool(values) and all(
        isinstance(one, ParametersOf)
        and not one.element
        and not one.named
        and not one.unsharded_copy
        and any(map(is_fsdp1, one.modules))
        for one in values
    )

"""Names of models that code gives to a static method of FSDP1 for states.

In a function that the program does not call, nothing else is known about them:
`FSDP.set_state_dict_type(model, ...)` has an effect on the states of wrapped models only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from fsdplint.migration.analysis.isinstance_narrowing import refers_to
from fsdplint.migration.analysis.unreached_code import bindings
from fsdplint.migration.names import FSDP
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import walk

# The methods, with the names of their parameters up to the model.
METHODS = {
    "set_state_dict_type": ("module",),
    "state_dict_type": ("module",),
    "optim_state_dict": ("model",),
    "full_optim_state_dict": ("model",),
    "sharded_optim_state_dict": ("model",),
    "optim_state_dict_to_load": ("model",),
}


def typed_models(
    sources: Sequence[Source], fsdp1: Callable[[cst.CSTNode], str]
) -> set[cst.CSTNode]:
    """The nodes that name such a model where the call is made in any case.

    Args:
        sources: the files to look at.
        fsdp1: the name of FSDP1 to which a node refers, or "".
    """
    found: set[cst.CSTNode] = set()
    for source in sources:
        for call in walk(source, skip_imports=True):
            model = _given_model(call, fsdp1)
            if model is None or not isinstance(call, cst.Call):
                continue
            text = source.code(model)
            for part in _nodes_beside(source, call):
                if refers_to(source, part, text) and not _is_rebound(source, call, part, text):
                    found.add(part)
    return found


def _given_model(
    call: cst.CSTNode, fsdp1: Callable[[cst.CSTNode], str]
) -> cst.BaseExpression | None:
    """The model that a call gives to one of the methods."""
    if not isinstance(call, cst.Call):
        return None
    name = fsdp1(call.func)
    parameters = METHODS.get(name.removeprefix(f"{FSDP}."))
    if parameters is None or not name.startswith(f"{FSDP}."):
        return None
    given = arguments(call, parameters)[0].get(parameters[0])
    model = given.value if given is not None else None
    return model if isinstance(model, cst.Name | cst.Attribute) else None


def _nodes_beside(source: Source, call: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes of the block around a call, except those of compound statements before it."""
    block = next(
        outer
        for outer in ancestors(source, call)
        if isinstance(outer, cst.IndentedBlock | cst.Module)
    )
    start = source.span(call)[0]
    for statement in block.body:
        is_before = source.span(statement)[1] <= start
        if isinstance(statement, cst.SimpleStatementLine) or not is_before:
            yield from descend(statement)


def _is_rebound(source: Source, call: cst.CSTNode, node: cst.CSTNode, text: str) -> bool:
    """Whether a name may have another value than where it is given to the method."""
    function = function_around(source, call)
    if function_around(source, node) is not function:
        return True
    start, end = sorted((source.span(call)[0], source.span(node)[0]))
    places = bindings(source, function).get(text, ())
    return any(start < source.span(place)[0] < end for place in places)

"""States that code reads after the program has loaded them.

torch's setter of a full state changes the dict that it gets: afterwards it has the shards, also of
parameters that the state lacks. `load_state_dict` leaves its dict alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.analysis.variables import definitions, home_of
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend

MAX_DEPTH = 3  # functions that hand a state on
MISSING = "keys that a full state lacks are not reported"
MISSING_DETAIL = (
    "`set_model_state_dict` fills such a state with the values of the model: it neither raises nor returns "
    "missing keys. To find them, compare the keys of the state with those of the model before."
)


def unchanged(
    migration: Migration, source: Source, call: cst.Call, given: cst.BaseExpression, text: str
) -> str:
    """The text of a state for torch's setter: a copy if other code reads the state later."""
    sources = list(migration.program.sources.values())
    return f"dict({text})" if _is_read_later(sources, source, call, given) else text


def _is_read_later(
    sources: list[Source],
    source: Source,
    call: cst.Call,
    given: cst.BaseExpression,
    depth: int = MAX_DEPTH,
) -> bool:
    """Whether code reads the argument of a call after the call."""
    if isinstance(given, cst.Attribute):
        return _is_read_elsewhere(sources, given)
    if not isinstance(given, cst.Name | cst.Subscript):
        return False
    home = home_of(source, given) if isinstance(given, cst.Name) else None
    scope = home or function_around(source, call) or source.tree
    code, end = source.code(given), source.span(call)[1]
    later = any(
        source.span(part)[0] >= end and _reads(source, part)
        for part in source.descend(scope)
        if type(part) is type(given) and source.code(part) == code
    )
    if later or _is_loaded_again(source, call, given):
        return True
    if not isinstance(home, cst.FunctionDef) or not isinstance(given, cst.Name) or not depth:
        return False
    return any(
        _is_read_later(sources, other, outer, argument, depth - 1)
        for other, outer, argument in _given_to(sources, home, given.value)
    )


def _is_read_elsewhere(sources: list[Source], given: cst.Attribute) -> bool:
    """Whether other code reads an attribute of the same name."""
    return any(
        part is not given and _reads(source, part)
        for source in sources
        if given.attr.value in source.text
        for part in source.descend(source.tree)
        if isinstance(part, cst.Attribute) and part.attr.value == given.attr.value
    )


def _given_to(
    sources: list[Source], function: cst.FunctionDef, parameter: str
) -> Iterator[tuple[Source, cst.Call, cst.BaseExpression]]:
    """The calls of a function by its name, with what they give for a parameter."""
    names = [one.name.value for one in function.params.params]
    for source in sources:
        for call in source.descend(source.tree) if function.name.value in source.text else ():
            if not isinstance(call, cst.Call):
                continue
            is_method = isinstance(call.func, cst.Attribute)
            called = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
            if not is_constant(called, function.name.value):
                continue
            own = names[1:] if is_method and names[:1] in (["self"], ["cls"]) else names
            arg = arguments(call, own)[0].get(parameter)
            if arg is not None:
                yield source, call, arg.value


def _reads(source: Source, node: cst.CSTNode) -> bool:
    """Whether a node is neither deleted nor assigned."""
    parent = source.parent(node)
    return not isinstance(parent, cst.Del | cst.AssignTarget)


def _is_loaded_again(source: Source, call: cst.Call, given: cst.BaseExpression) -> bool:
    """Whether a loop around a load repeats it with the same variable."""
    if not isinstance(given, cst.Name):
        return False
    made = [one.statement for one in definitions(source, given) or ()]
    for loop in ancestors(source, call):
        if isinstance(loop, cst.FunctionDef | cst.Lambda):
            return False
        if isinstance(loop, cst.For | cst.While):
            inside = set(descend(loop))
            return bool(made) and not any(one in inside for one in made)
    return False


def note_missing(migration: Migration, source: Source, call: cst.Call, *, strict: bool) -> None:
    """Note that missing keys are not reported, if the program asks for them."""
    if strict or not isinstance(source.parent(call), cst.Expr):
        migration.note(MISSING, source, call, detail=MISSING_DETAIL)

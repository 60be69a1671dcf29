"""States that code reads after the program has loaded them.

torch's setter of a full state changes the dict that it gets: afterwards it has the shards, also of
parameters that the state lacks. `load_state_dict` leaves its dict alone.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import definitions, home_of
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend

MISSING = "keys that a full state lacks are not reported"
MISSING_DETAIL = (
    "`set_model_state_dict` fills such a state with the values of the model: it neither raises nor returns "
    "missing keys. To find them, compare the keys of the state with those of the model before."
)


def unchanged(source: Source, call: cst.Call, given: cst.BaseExpression, text: str) -> str:
    """The text of a state for torch's setter: a copy if other code reads the state later."""
    if not isinstance(given, cst.Name | cst.Subscript | cst.Attribute):
        return text
    home = home_of(source, given) if isinstance(given, cst.Name) else None
    scope = home or function_around(source, call) or source.tree
    code, end = source.code(given), source.span(call)[1]
    later = any(
        source.span(part)[0] >= end and _reads(source, part)
        for part in source.descend(scope)
        if type(part) is type(given) and source.code(part) == code
    )
    return f"dict({text})" if later or _is_loaded_again(source, call, given) else text


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

"""Loops over lists whose elements each rank chooses by its own data.

The ranks make different numbers of such turns. This is followed within one function: the list is
filled at one place, by a test of the data, and nothing else in the function changes it or gives it
away. A collective in between may have told the ranks how many turns to make.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.own_lengths import own_length
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import RankLocal, Sequence
from fsdplint.syntax.dotted import dotted_name
from fsdplint.trace import Collective

_READS = frozenset("enumerate len print range reversed sorted".split())
_AGREES = re.compile(r"reduce|gather|broadcast|scatter|send|recv|all_to_all")


def chosen_by_data(run: Run, place: cst.BaseExpression) -> RankLocal | None:
    """What makes the number of turns over an expression different on each rank."""
    name = _list_in(place)
    value = run.frames[-1].scope.lookup(name) if name else None
    local = own_length(value) if isinstance(value, Sequence) else None
    if local is None or local.counts or local.position or run.decisions.single_rank:
        return None
    return local if _is_filled_once(run, place, name) and not _may_agree(run) else None


def _list_in(place: cst.BaseExpression) -> str:
    """The name of the list over which a loop goes: `kept`, `enumerate(kept)`, `range(len(kept))`"""
    if isinstance(place, cst.Name):
        return place.value
    if not isinstance(place, cst.Call) or any(arg.keyword or arg.star for arg in place.args):
        return ""
    name, values = dotted_name(place.func), [arg.value for arg in place.args]
    if name in ("enumerate", "reversed") and values:
        return values[0].value if isinstance(values[0], cst.Name) else ""
    if name != "range" or not values:
        return ""
    end = values[0] if len(values) == 1 else values[1]
    if isinstance(end, cst.Call) and dotted_name(end.func) == "len" and len(end.args) == 1:
        return end.args[0].value.value if isinstance(end.args[0].value, cst.Name) else ""
    return ""


def _is_filled_once(run: Run, place: cst.CSTNode, name: str) -> bool:
    """Whether a function fills a list at one place and only reads it elsewhere."""
    function: cst.CSTNode | None = place
    while function is not None and not isinstance(function, cst.FunctionDef | cst.Lambda):
        function = run.source.parent(function)
    filled = 0
    for node in run.source.descend(function if function is not None else run.source.tree):
        if isinstance(node, cst.Name) and node.value == name:
            use = _use_of(run, node)
            if use is None:
                return False
            filled += use
    return filled == 1


def _use_of(run: Run, node: cst.Name) -> int | None:
    """Whether a use of a list fills it (1) or reads it (0); None for any other use."""
    around = run.source.parent(node)
    if isinstance(around, cst.AssignTarget):
        statement = run.source.parent(around)
        if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
            return None
        if isinstance(statement.value, cst.ListComp):
            return 1
        return 0 if isinstance(statement.value, cst.List) and not statement.value.elements else None
    if isinstance(around, cst.Attribute) and around.value is node:
        return 1 if around.attr.value == "append" else None
    if isinstance(around, cst.Arg):
        call = run.source.parent(around)
        return 0 if isinstance(call, cst.Call) and dotted_name(call.func) in _READS else None
    if isinstance(around, cst.Subscript) and around.value is node:
        return None if isinstance(run.source.parent(around), cst.AssignTarget | cst.Del) else 0
    reads = isinstance(around, cst.For | cst.CompFor) and around.iter is node
    return 0 if reads else None


def _may_agree(run: Run) -> bool:
    """Whether the ranks have communicated since the function began."""
    return any(_AGREES.search(event.api) for event in _collectives_here(run))


def _collectives_here(run: Run) -> Iterator[Collective]:
    depth = len(run.stack)
    for event in reversed(run.trace.events):
        if event.stack[:depth] != tuple(run.stack):
            return
        if isinstance(event, Collective):
            yield event

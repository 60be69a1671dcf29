"""The assignment that a read of a variable gets, where statements assign it one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.analysis.variables import (
    Definition,
    definition_at,
    definitions,
    home_of,
    reads,
)
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors, function_around


@dataclass
class Reach:
    """One assignment of a variable, and all places that read its value."""

    definition: Definition
    reads: list[cst.Name]


def reach(source: Source, name: cst.Name) -> Reach | None:
    """The assignment whose value a name has, and its reads; None if that is not certain.

    name: a read, or the target of an assignment. Several assignments have to stand in the same
    block, as in a script that builds its model twice.
    """
    found = definitions(source, name)
    home = home_of(source, name)
    if not found or home is None:
        return None
    every = reads(source, home, name.value)
    if len(found) == 1:
        return Reach(found[0], every)
    lines = [source.parent(one.statement) for one in found]
    block = source.parent(lines[0]) if lines[0] is not None else None
    if block is None or any(line is None or source.parent(line) is not block for line in lines):
        return None
    order = {line: number for number, line in enumerate(block.children)}
    starts = {order[line]: one for line, one in zip(lines, found, strict=True) if line}
    by_definition: dict[int, list[cst.Name]] = {number: [] for number in starts}
    own = next((at for at, one in starts.items() if _is_target(source, name, one)), None)
    for read in every:
        at = next((order[one] for one in ancestors(source, read) if one in order), None)
        before = [number for number in starts if at is not None and number < at]
        if not before or function_around(source, read) is not home:
            return None
        by_definition[max(before)].append(read)
        own = max(before) if read is name else own
    if own is None:
        return None
    return Reach(starts[own], by_definition[own])


def _is_target(source: Source, name: cst.Name, definition: Definition) -> bool:
    return definition_at(source, name) == definition

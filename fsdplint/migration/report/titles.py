"""Titles for changed lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsdplint.edits.regions import Region

if TYPE_CHECKING:
    from fsdplint.migration.context import Step
    from fsdplint.source.source import Source

_IMPORT = re.compile(r"\s*(?:from\s+\S+\s+)?import\b")


def titles_of(source: Source, region: Region, steps: Sequence[Step]) -> list[str]:
    """The titles of the steps at some lines, else titles that describe the lines."""
    found = _at(source, region, steps)
    if found:
        return found
    names = _names(source, region)
    lines = [line for line in [*region.before, *region.after] if line.strip()]
    if (lines and _IMPORT.match(lines[0])) or _in_import(source, region):
        if not region.after:
            return ["Remove imports that nothing uses any longer"]
        return ["Import what the new code uses"]
    if not lines:
        return ["Adapt the blank lines"]
    if names:
        listed = ", ".join(f"`{name}`" for name in names)
        return [f"Replace {listed}" if region.after else f"Remove {listed}"]
    if not region.after:
        return ["Remove what nothing uses any longer"]
    if not region.before:
        return ["Add what the new code calls"]
    if [line.strip() for line in region.before] == [line.strip() for line in region.after]:
        return ["Move these lines out of the block around them"]
    return _steps_around(source, region, steps) or ["Adapt the code around it"]


def _at(source: Source, region: Region, steps: Sequence[Step]) -> list[str]:
    """The steps at some lines, without steps inside of others."""
    here = []
    for step in steps:
        at = source.location(step.node)
        if region.touches(at.line, max(at.line, at.end_line)):
            here.append((source.span(step.node), step.title))
    outer = {
        title: None
        for (start, end), title in here
        if not any(
            left <= start and end <= right and (left, right) != (start, end)
            for (left, right), _ in here
        )
    }
    return list(outer)


def _steps_around(source: Source, region: Region, steps: Sequence[Step]) -> list[str]:
    """The steps on a `with` statement around some lines."""
    import libcst as cst

    found: dict[str, None] = {}
    for step in steps:
        node: cst.CSTNode | None = step.node
        while node is not None and not isinstance(node, cst.With | cst.BaseSmallStatement):
            node = source.parent(node)
        if isinstance(node, cst.With):
            at = source.location(node)
            if region.touches(at.line, at.end_line):
                found.setdefault(step.title)
    return list(found)


def _names(source: Source, region: Region) -> list[str]:
    """The names of FSDP1 in the lines that change."""
    from fsdplint.migration.names import PREFIX, fsdp1_name
    from fsdplint.syntax.qualified_names import references

    names: dict[str, None] = {}
    for _, node, full in references(source, PREFIX):
        name = fsdp1_name(full)
        line = source.position(source.span(node)[0])[0]
        if name is not None and region.line <= line < region.line + region.count:
            names.setdefault(name)
    return list(names)


def _in_import(source: Source, region: Region) -> bool:
    """Whether the lines stand inside of an import statement."""
    import libcst as cst

    from fsdplint.syntax.qualified_names import walk

    for node in walk(source):
        if isinstance(node, cst.Import | cst.ImportFrom):
            at = source.location(node)
            if at.line <= region.line <= at.end_line and region.count:
                return True
    return False

"""Migrations of projects whose requirements allow a torch without FSDP2."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.config.target_torch import raise_lower_bound
from fsdplint.diagnostics.finding import Edit, Fix, Note
from fsdplint.source.files import Unreadable, read_bytes
from fsdplint.source.requirements_source import RequirementsSource

if TYPE_CHECKING:
    from fsdplint.interpreter import Program
    from fsdplint.trace.torch_target import Target

NOTE = "the requirements ask for torch {since} or later"
DETAIL = "torch {since} is the first release with the public `fully_shard`."


def raise_bound(fix: Fix, program: Program, target: Target, since: str) -> Fix | None:
    """A fix that also raises the lower bound of torch; None if the requirements exclude it."""
    edits = bound_edits(program, target, since)
    if not edits:
        return None
    return replace(
        fix,
        edits=(*fix.edits, *edits),
        requirements=frozenset(edit.path for edit in edits),
        notes=(*fix.notes, Note(NOTE.format(since=since), DETAIL.format(since=since))),
    )


def bound_edits(program: Program, target: Target, since: str) -> list[Edit]:
    """The edits that raise the lower bound of torch; none if the requirements exclude it."""
    edits: list[Edit] = []
    for path, texts in (raise_lower_bound(target, since) or {}).items():
        source = _source(program, path)
        for old, new in texts.items():
            found = list(_edits(source, old, new)) if source is not None else []
            if not found:
                return []
            edits += found
    return edits


def without_bound(target: Target | None) -> Target | None:
    """A target after a fix has raised the lower bound."""
    return None if target is None else replace(target, oldest=None)


def _source(program: Program, path: Path) -> RequirementsSource | None:
    """A file of requirements as a part of the program.

    Its path is relative to the current folder where those of the sources are.
    """
    absolute = any(map(os.path.isabs, program.sources))
    name = str(path) if absolute else os.path.relpath(path)
    if name not in program.requirements:
        try:
            program.requirements[name] = RequirementsSource.from_data(name, read_bytes(path))
        except (Unreadable, UnicodeDecodeError):
            return None
    return program.requirements[name]


def _edits(source: RequirementsSource, old: str, new: str) -> Iterator[Edit]:
    """The edits of a requirement: at the start of a line, or in quotes."""
    pattern = rf"""(?m)(?:^[ \t]*|(?<=["'])){re.escape(old)}(?![\w.])"""
    for found in re.finditer(pattern, source.text):
        yield Edit(source.path, found.end() - len(old), found.end(), new)

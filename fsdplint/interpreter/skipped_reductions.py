"""Code that may make a value the same on all ranks, and that a setting skips in this run.

A program that reduces its loss under a setting (`if args.distributed:`) reduces it wherever several
ranks run. A run that decides otherwise shows nothing about several ranks, so that a value which the
skipped code names counts as the same on all ranks.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.rank_agreement import note_agreement
from fsdplint.interpreter.run import Run
from fsdplint.source.positions import code_children


def doubt_own_data(run: Run, skipped: cst.CSTNode | None) -> None:
    """Code is skipped because of a setting: what it may reduce counts as reduced."""
    if skipped is None or not run.project.reducing_words.stand_in(skipped):
        return
    for name in _names(skipped):
        note_agreement(run.scope.lookup(name))


def doubt_returned(run: Run) -> None:
    """The function returns early because of a setting: its values count as reduced."""
    function = run.frames[-1].function
    if function is not None and run.project.reducing_words.stand_in(function.node):
        for value in run.scope.names.values():
            note_agreement(value)


def _names(node: cst.CSTNode) -> set[str]:
    found: set[str] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, cst.Name):
            found.add(current.value)
        stack.extend(code_children(current))
    return found

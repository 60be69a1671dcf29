"""Results of calls, and choices among lists."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.values import (
    Const,
    Unknown,
    Value,
)
from fsdplint.trace import (
    Loaded,
)


@dataclass(eq=False, repr=False)
class NoResult(Const):
    """The result, None, of a function that loads in place; `event` is its event."""

    event: Loaded | None = None


@dataclass(eq=False, repr=False)
class Length(Const):
    """The known length of a list or of a module with elements."""


def note_result_use(value: Value | None) -> None:
    """Record that the program uses a value as if a function had returned it."""
    if isinstance(value, NoResult) and value.event is not None:
        value.event.result_used = True


@dataclass(eq=False, repr=False)
class PossibleLists(Unknown):
    """One of several lists or dicts: see `possible_lists`.

    tests: the expressions that choose. outcomes: for each candidate, the result of each test where
    it is chosen, None if any will do; empty if that is not known.
    """

    candidates: tuple[Value, ...] = ()
    tests: tuple[cst.CSTNode, ...] = ()
    outcomes: tuple[tuple[bool | None, ...], ...] = ()

"""What the interpreter keeps of a call that it executes, and the bounds of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from fsdplint.interpreter.values import Class, Function, Scope, Value
from fsdplint.source.source import NodeSite
from fsdplint.trace import Guard

MAX_STEPS = 200_000  # nodes evaluated in one run
MAX_EVENTS = 20_000  # in one run: rules compare events with each other
MAX_MODULES = 2_000  # made in one run
MAX_DEPTH = 40  # nested calls of the project's functions
MAX_RECURSION = 6  # of them, of one function: enough for a walk down a tree of modules
MAX_RECURSION_STEPS = 60_000  # in one call of it, with all that it calls

# Until when a guard that was left behind by `if ...: return` (or continue) stays.
BLOCK, SUITE, LOOP, FUNCTION, PROGRAM = "block", "suite", "loop", "function", "program"


class OutOfSteps(Exception):
    """The run met its bound; what it has seen so far stands.

    Attributes:
        at: the place in each function that is being executed, the innermost last.
        bound: which bound it met, in words.
    """

    def __init__(self, at: tuple[NodeSite, ...], bound: str) -> None:
        super().__init__(bound)
        self.at = at
        self.bound = bound


class Stopped(BaseException):
    """Whoever asked for the work does not want it any more."""


@dataclass
class GuardEntry:
    guard: Guard
    key: str
    until: str = BLOCK


@dataclass
class Frame:
    """A call of a project's function that is being executed."""

    function: Function | None
    scope: Scope
    receiver: Value | None = None
    owner: Class | None = None
    partial: list[tuple[Any, Value]] = field(default_factory=list)  # returned under a guard
    yields: list[Value] = field(default_factory=list)
    on_yield: Any = None  # what to do at `yield`, for a @contextmanager
    first_step: int = 0  # the steps of the run before it


@dataclass
class Call:
    """A call that is being executed: what models of library functions are given.

    open: a `*args` or `**kwargs` could not be followed, so that further arguments may be there.
    """

    node: cst.CSTNode
    args: list[Value] = field(default_factory=list)
    kwargs: dict[str, Value] = field(default_factory=dict)
    open: bool = False

    def arg(self, position: int, name: str) -> Value | None:
        """An argument by its position or name; None where it was not given."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[position] if position < len(self.args) else None

    @property
    def values(self) -> list[Value]:
        return [*self.args, *self.kwargs.values()]

"""The calls that the interpreter executes, and the bounds of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from fsdplint.interpreter.torch_values import Columns
from fsdplint.interpreter.values import Class, Function, RankLocal, Scope, Value
from fsdplint.source.source import NodeSite
from fsdplint.trace import Called, Guard

MAX_STEPS = 200_000  # nodes evaluated in one run
# The factor of this bound for a program that has sharded a model: its training comes after that.
STEPS_AFTER_SHARDING = 2
MAX_EVENTS = 20_000  # in one run; rules compare events pairwise
MAX_MODULES = 2_000  # made in one run
MAX_DEPTH = 40  # nested calls of the project's functions
MAX_RECURSION = 6  # of one function among them: enough to walk down a tree of modules
MAX_RECURSION_STEPS = 60_000  # in one call of it, nested calls included

# How long a guard holds that `if ...: return` (continue, break) leaves behind.
BLOCK, SUITE, TURN, LOOP = "block", "suite", "turn", "loop"
FUNCTION, PROGRAM = "function", "program"
# The guards that have ended at the end of something: those left behind until then, or shorter.
ENDED = {
    TURN: {BLOCK, TURN},
    LOOP: {BLOCK, TURN, LOOP},
    FUNCTION: {BLOCK, TURN, LOOP, FUNCTION},
}


class OutOfSteps(Exception):
    """The run reached a bound; its results so far are valid.

    Attributes:
        at: the place in each function that is being executed, the innermost last.
        bound: the bound, as text for messages.
    """

    def __init__(self, at: tuple[NodeSite, ...], bound: str) -> None:
        super().__init__(bound)
        self.at = at
        self.bound = bound


class Stopped(BaseException):
    """The caller cancelled the work."""


@dataclass
class GuardEntry:
    guard: Guard
    key: str
    until: str = BLOCK


@dataclass(frozen=True)
class Turns:
    """The numbers of turns of a loop on the first and the last rank, and where they come from."""

    most: int
    fewest: int
    site: NodeSite


@dataclass(eq=False)
class OwnTurns:
    """A loop that is being executed.

    step: the step of the run at which it began. guards: the conditions around it. local: what makes
    the number of its turns different on each rank; None if nothing certain. may_end_early: whether
    a turn may decide that it is the last one. left: whether an undecided test has ended a turn.
    body: what each turn executes.
    """

    step: int
    guards: list[GuardEntry]
    local: RankLocal | None
    may_end_early: bool = False
    left: bool = False
    body: cst.CSTNode | None = None


@dataclass
class Frame:
    """A call of a project's function that is being executed."""

    function: Function | None
    scope: Scope
    receiver: Value | None = None
    owner: Class | None = None
    partial: list[tuple[Any, Value]] = field(default_factory=list)  # returned under a guard
    yields: list[Value] = field(default_factory=list)
    yields_open: bool = False  # it may yield more or fewer values than these
    loop_depth: int = 0  # of the run when it was entered
    handlers: int = 0  # the `try` statements with handlers whose body is being executed
    on_yield: Any = None  # called at `yield`, for a @contextmanager
    first_step: int = 0  # the number of steps of the run before it
    guards_outside: list[GuardEntry] = field(default_factory=list)  # those that the call stands in
    deciding_outside: int = 0  # the number of conditions in `Run.deciding` that it stands under
    knowledge: tuple[object, ...] | None = None  # of its arguments: see `recursion`
    of_comprehension: bool = False  # it is no call, but the scope of a comprehension in one


@dataclass
class Call:
    """A call that is being executed, as models of library functions get it.

    open: a `*args` or `**kwargs` could not be followed, so it may have further arguments.
    shifted: a `*args` could not be followed, so the position of what follows it is not known.
    spread: the values of such `args` and `kwargs`.
    """

    node: cst.CSTNode
    args: list[Value] = field(default_factory=list)
    kwargs: dict[str, Value] = field(default_factory=dict)
    open: bool = False
    shifted: bool = False
    spread: list[Value] = field(default_factory=list)

    def arg(self, position: int, name: str) -> Value | None:
        """An argument by its position or name; None if it was not passed."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[position] if position < len(self.args) else None

    @property
    def values(self) -> list[Value]:
        return [*self.args, *self.kwargs.values()]


@dataclass(frozen=True)
class OutputFacts:
    """What is known of a tensor that a forward returns.

    dtype: its dtype; "" if it is not certain. columns: see `local_columns`.
    """

    dtype: str = ""
    columns: Columns | None = None


# An object that is changed, None if it is not known, and the attribute that gets another value.
Change = tuple[Value | None, str]


@dataclass
class ForwardSummary:
    """The events of a forward, see `fsdplint.interpreter.forward_summaries`.

    begin: the index of the first one. around: the index of the event of the call itself.
    depth: the number of guards, calls and callbacks around the forward.
    kept: objects that have to live as long as the summary.
    output: what is known of the tensor that it returns.
    changed: what it changed; None for nothing.
    """

    events: list[Called]
    begin: int
    around: int
    depth: tuple[int, int, int]
    kept: tuple[object, ...]
    output: OutputFacts
    changed: Any = None  # see `plain_forwards`

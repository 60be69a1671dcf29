"""The local rank among the program's command-line arguments."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.runtime.recorder.recorder import Entry
from fsdplint.runtime.recorder.sites import Span
from fsdplint.trace import LauncherArgumentUsed


@dataclass
class ArgumentRead:
    """What the program has done with watched arguments.

    Attributes:
        span: where the parser gets the argument of the local rank.
        entry: the event of reading the local rank.
        set: whether the program has overwritten the local rank.
    """

    span: Span
    entry: Entry[LauncherArgumentUsed] | None = None
    set: bool = False


class LauncherArguments:
    """The argument of the local rank in parsers, and its use by the program.

    Attributes:
        added: the place at which an action was added to a parser, by the action's id.
        reads: the use of parsed arguments, by their id.
    """

    def __init__(self) -> None:
        self.added: dict[int, Span] = {}
        self.reads: dict[int, ArgumentRead] = {}

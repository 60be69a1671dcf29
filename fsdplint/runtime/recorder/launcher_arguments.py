"""The local rank among the program's command-line arguments."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.runtime.recorder.recorder import Entry
from fsdplint.runtime.recorder.sites import Span
from fsdplint.trace import LauncherArgumentUsed


@dataclass
class ArgumentRead:
    """What the program has done with arguments that are watched.

    Attributes:
        span: where their parser gets the local rank.
        entry: the event of its being read.
        set: whether the program has put another value in its place.
    """

    span: Span
    entry: Entry[LauncherArgumentUsed] | None = None
    set: bool = False


class LauncherArguments:
    """Where parsers get the argument, and what the program does with it.

    Attributes:
        added: the place at which an action of a parser was added, by the action's identity.
        reads: by the identity of the parsed arguments.
    """

    def __init__(self) -> None:
        self.added: dict[int, Span] = {}
        self.reads: dict[int, ArgumentRead] = {}

"""How far a command is: what it does now, and how much of it is done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Progress:
    """The progress of the one command of this process.

    Attributes:
        what: what is done, as a participle.
        done: the number of programs that this is done for.
        total: the number of all programs; 0 if it is not known.
    """

    what: str = "reading files"
    done: int = 0
    total: int = 0

    def begin(self, what: str = "reading files", total: int = 0) -> None:
        """Begin with something new."""
        self.what, self.done, self.total = what, 0, total

    def advance(self) -> None:
        """One more program is done."""
        self.done += 1


PROGRESS = Progress()

"""The torch that a program is for."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.trace.torch_versions import FIRST, older

SETTING = "target-torch"


@dataclass(frozen=True)
class Target:
    """The torch that a program is for.

    Attributes:
        oldest: the oldest torch that it has to run on; None where that is not known.
        newest: the torch by which all that it uses must be there; None where newer ones will do.
        origin: where this is from: "target-torch", or "requirements.txt: torch==2.5.1".
    """

    oldest: str | None = None
    newest: str | None = None
    origin: str = SETTING

    def lacks(self, since: str) -> bool:
        """Whether something is certainly missing that came with a version."""
        return self.newest is not None and older(self.newest, since)

    def predates(self, since: str) -> bool:
        """Whether the program may have to run on a torch that is older than a version.

        A program with FSDP2 runs on none without it, whatever its requirements say.
        """
        return older(FIRST, since) and self.may_be_older(since)

    def may_be_older(self, version: str) -> bool:
        """Whether the torch that a program has to run on may be older, be it one without FSDP2."""
        return self.oldest is not None and older(self.oldest, version)

    def description(self) -> str:
        """The target as a part of a sentence: "target-torch is 2.5"."""
        if self.origin == SETTING:
            return f"{SETTING} is {self.oldest}"
        file, _, requirement = self.origin.partition(": ")
        return f"{file} asks for {requirement} (--target-torch says otherwise)"

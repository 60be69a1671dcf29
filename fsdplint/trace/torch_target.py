"""The torch version that a program targets."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsdplint.trace.torch_versions import FIRST, older

SETTING = "target-torch"


@dataclass(frozen=True)
class Target:
    """The torch version that a program targets.

    Attributes:
        oldest: the oldest torch that it has to run on; None if unknown.
        newest: the newest torch whose APIs it may use; None if there is no limit.
        origin: the setting: "target-torch", or "requirements.txt: torch==2.5.1".
        folder: the folder of these requirements; "" for a setting.
    """

    oldest: str | None = None
    newest: str | None = None
    origin: str = SETTING
    folder: str = field(default="", compare=False)

    def lacks(self, since: str) -> bool:
        """Whether the target certainly lacks an API that a version added."""
        return self.newest is not None and older(self.newest, since)

    def has(self, since: str) -> bool:
        """Whether the program certainly runs on a torch that is not older than a version."""
        return self.oldest is not None and not older(self.oldest, since)

    def predates(self, since: str) -> bool:
        """Whether the program may have to run on a torch that is older than a version.

        A program with FSDP2 needs a torch with FSDP2, even if its requirements allow older ones.
        """
        return older(FIRST, since) and self.may_be_older(since)

    def may_be_older(self, version: str) -> bool:
        """Whether the program may have to run on an older torch, including one without FSDP2."""
        return self.oldest is not None and older(self.oldest, version)

    def description(self) -> str:
        """The target as a part of a sentence: "target-torch is 2.5"."""
        if self.origin == SETTING:
            return f"{SETTING} is {self.oldest}"
        file, _, requirement = self.origin.partition(": ")
        return f"{file} asks for {requirement} (--target-torch says otherwise)"

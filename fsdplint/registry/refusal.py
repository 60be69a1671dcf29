"""Why a fix is not offered: what its trial showed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fsdplint.trace import Location


class Harm(Enum):
    """What is wrong with a program after a fix."""

    UNUSABLE = "the fix cannot be written, or leaves code that cannot run"
    NEW_ERROR = "a rule finds an error that the program did not have"
    OLD_ERROR = "an error that the program has becomes another one"
    USE_LEFT = "something that was to be replaced is still there"
    OTHER_FACT = "the program does something else"


@dataclass(frozen=True)
class Refusal:
    """Why a fix is not offered.

    Attributes:
        reason: what is wrong with it, as the rest of a sentence about it: "would leave ...".
        at: the line of the program where that is; None where only the fix writes it.
        harm: which kind of reason this is.
    """

    reason: str
    at: Location | None = None
    harm: Harm = Harm.UNUSABLE

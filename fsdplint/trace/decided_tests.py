"""The tests of a program's settings that the interpreter decided."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DecidedTest:
    """A test that was decided for a run.

    Attributes:
        text: its code.
        negated: whether the code is true if the decision is false.
        subject, relation, operand: what is tested ("args.strategy"), how ("==", "in", "is None",
            ...) and with which value; the subject is empty if it is not known.
    """

    text: str
    negated: bool = False
    subject: str = ""
    relation: str = ""
    operand: object = None

"""Why code has no faithful rewrite: a definition for each reason, in the modules of this package.

A blocker has a code that stays the same when its sentences are reworded, a message, and the advice on
what a person has to decide or do. Message and advice are templates with named fields:

    KEY_TWICE = Blocker("FSDP201-key-twice", "`{name}` gets the same key twice", advice.WRITE_ARGUMENTS)

    raise Blocked(source, node, KEY_TWICE(name=name.value))

The code begins with the rule whose finding the code usually blocks. Advice that several blockers share
stands in `advice`. `tests/migration/test_blockers.py` compares the fields of all templates and calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.source.source import Source


@dataclass(frozen=True)
class Blocker:
    """A reason why code has no faithful rewrite.

    Attributes:
        code: its stable name.
        message: why, as a template.
        advice: what a person has to decide or do, as a template.
    """

    code: str
    message: str
    advice: str

    def __call__(self, **fields: object) -> Reason:
        """The reason for one place of a program."""
        return Reason(self, self.message.format(**fields), self.advice.format(**fields))


@dataclass(frozen=True)
class Reason:
    """A blocker with its fields filled in."""

    blocker: Blocker
    message: str
    advice: str


class Blocked(Exception):
    """Something has no faithful rewrite; `node` is what, `reason` why.

    `advice` is what a person has to decide or do: a sentence or two. `internal` is "name" where it
    is about a name of FSDP1's internals, and "attribute" where about an attribute of its wrapper.
    `use` is the use of FSDP1 whose rewrite failed, if it is known. `rewritten_with_other` says that
    the rewrite of another use accounts for the code.
    """

    def __init__(
        self, source: Source, node: cst.CSTNode, reason: Reason, *, internal: str = ""
    ) -> None:
        super().__init__(reason.message)
        self.source = source
        self.node = node
        self.blocker = reason.blocker
        self.reason = reason.message
        self.advice = reason.advice
        self.internal = internal
        self.use: tuple[Source, cst.CSTNode] | None = None
        self.rewritten_with_other = False

    @property
    def code(self) -> str:
        """The stable code of the blocker."""
        return self.blocker.code

    def at(self, source: Source, node: cst.CSTNode) -> Blocked:
        """The same reason at another place."""
        return Blocked(source, node, Reason(self.blocker, self.reason, self.advice))

"""The places where the interpretation of a program reached a bound."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.source.source import NodeSite


@dataclass(frozen=True)
class Cut:
    """The place where the interpretation of a program reached a bound.

    Attributes:
        site: the place in the file of the program.
        reason: the code that was not followed to its end, and the bound, as text for messages.
        inner: the last place that was reached, if it is another one.
        named_by_user: whether the user named the file.
        unfinished: whether the first run of the file, which takes every branch, ended there.
        untried: whether values that a name may choose, and that matter to a migration, were not
            tried.
    """

    site: NodeSite
    reason: str
    inner: NodeSite | None = None
    named_by_user: bool = True
    unfinished: bool = False
    untried: bool = False

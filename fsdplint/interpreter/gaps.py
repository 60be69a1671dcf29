"""Why no run of a program reached a site with a sharded model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fsdplint.source.source import Source
from fsdplint.syntax.api_sites import ApiSite


class Gap(Enum):
    """Why no run reached a site with a sharded model."""

    UNSHARDED = "every run that comes here leaves the model unsharded"
    BOUND = "the work on the program ended before it"
    UNCALLED = "no call of `{name}` was found"
    UNKNOWN_CALLEE = "`{name}` is called only where the callee is unknown"
    UNREACHED_CALL = "`{name}` is called only by code that no run reaches"
    BRANCH = "no run takes this branch of `{name}`"
    HANDLER = "no run raises what this handler catches"
    LEFT = "every run leaves the block before it"
    EXPRESSION = "no run evaluates this part of the expression"


@dataclass(frozen=True)
class SiteCoverage:
    """What the runs did with a site.

    Attributes:
        source: the file.
        site: the site.
        gap: why it is not covered; None if it is.
        detail: what the reason is about, for the text of the gap.
    """

    source: Source
    site: ApiSite
    gap: Gap | None = None
    detail: str = ""

    @property
    def reason(self) -> str:
        """The gap in words; "" for a covered site."""
        return "" if self.gap is None else self.gap.value.format(name=self.detail)

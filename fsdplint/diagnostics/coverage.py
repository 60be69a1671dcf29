"""Coverage as it is reported: the sites of the contract's API, and why some were not reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fsdplint.trace import Location


@dataclass(frozen=True)
class CoveredSite:
    """A call of the contract's API.

    Attributes:
        at: where it stands.
        kind: what the call does, e.g. "optimizer" or "state dict".
        name: the callee as it is written.
        gap: the name of the reason why it is not covered; None if it is.
        reason: the reason in words; "" if it is covered.
    """

    at: Location
    kind: str
    name: str
    gap: str | None = None
    reason: str = ""

    @property
    def covered(self) -> bool:
        return self.gap is None


def merge_sites(sites: Iterable[CoveredSite]) -> list[CoveredSite]:
    """The sites of several checks, each once and in order; one that a check covers is covered."""
    found: dict[Location, CoveredSite] = {}
    for site in sites:
        known = found.get(site.at)
        if known is None or site.covered:
            found[site.at] = site
    return [found[at] for at in sorted(found)]

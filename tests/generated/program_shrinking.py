"""Makes the description of a failure small: features that the failure does not need are dropped."""

from __future__ import annotations

from plain_ranks import PlainRanks
from program_features import FEATURES, Description, consistent, differences
from program_outcomes import Outcome, judge


def shrink(
    description: Description, outcome: Outcome, ranks: PlainRanks
) -> tuple[Description, Outcome]:
    """The smallest description found that fails in the same way, and its outcome."""
    current = dict(description)
    smaller = True
    while smaller:
        smaller = False
        for name in differences(current):
            tried = consistent({**current, name: FEATURES[name][0]})
            if len(differences(tried)) >= len(differences(current)):
                continue
            found = judge(tried, ranks)
            if found.kind == outcome.kind:
                current, outcome, smaller = tried, found, True
    return current, outcome

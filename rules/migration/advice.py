"""What a person has to decide where a migration is blocked, if the blocker does not say so itself."""

from __future__ import annotations

import re

from fsdplint.rules.migration.context import Blocked

KINDS = (
    (
        r"run time|cannot be read|cannot be told|comes? from cannot be seen|is made cannot be seen",
        "Write the value out here (a literal, or a name that is assigned once, in these files), so "
        "that it can be read; or rewrite this call by hand.",
    ),
    (
        r"cannot be seen|not in sight",
        "Name the file that this code is in as well, or do here in plain sight what it does; then "
        "run this again.",
    ),
    (
        r"in other configurations|in some configurations|under a condition|several branches",
        "Decide which of the ways stays. Where both do, give each a call of its own, so that what is "
        "said of FSDP1 stands in the branch that uses it.",
    ),
    (
        r"several places|used (here |elsewhere )?(in another way|too)|for two kinds",
        "Give each use an object of its own, made where it is used.",
    ),
    (
        r"further arguments|with arguments|optim_input|with a group",
        "Leave the additional arguments out if they say what holds anyway; otherwise rewrite this "
        "call by hand.",
    ),
    (
        r"files? that .*not given",
        "Name that file as well, or the folder that holds all of them.",
    ),
)
OTHERWISE = "Rewrite this code for FSDP2 by hand, or take it out; then run this again."


def advice_on(blocked: Blocked) -> str:
    """What a person has to decide or do about a blocker."""
    if blocked.advice:
        return blocked.advice
    for pattern, advice in KINDS:
        if re.search(pattern, blocked.reason):
            return advice
    return OTHERWISE

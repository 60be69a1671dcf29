"""Whether a refactored program ends on two ranks as the original does."""

from __future__ import annotations

import re

from refactoring import Refactoring
from subjects import Program
from two_ranks import Outcome, TwoRanks


def differences(refactoring: Refactoring, program: Program, ranks: TwoRanks) -> str | None:
    """What differs ("" if nothing); None where the refactoring does not apply.

    A bad program has to show its symptom, a good one has to end well; what is printed has to agree
    but for numbers, which timing and the names of temporary files change.
    """
    files = refactoring.apply(program.files)
    if files is None:
        return None
    before, after = ranks.run(program.files), ranks.run(files)
    if program.symptom is not None and before.shows(program.symptom):
        if not after.shows(program.symptom):
            return f"the symptom is gone: {_end(after)}"
    elif before.status != after.status:
        return f"{before.status} became {_end(after)}"
    if before.status == "ok" and _printed(before) != _printed(after):
        return "something else is printed"
    return ""


def _end(outcome: Outcome) -> str:
    return f"{outcome.status} {outcome.error.strip().splitlines()[-1:]}"


def _printed(outcome: Outcome) -> list[list[str]]:
    return [[re.sub(r"\d+", "0", line) for line in r.stdout.splitlines()] for r in outcome.ranks]

"""Whether a planted bug shows on two ranks."""

from __future__ import annotations

from functools import cache

from clean_programs import Program
from mutation_operator import Mutant
from two_ranks import Outcome, TwoRanks

from fsdplint.engine.check import check_recorded
from fsdplint.registry.rules import all_rules

RULES = [rule() for rule in all_rules()]


def shown(mutant: Mutant, program: Program, ranks: TwoRanks) -> str | None:
    """What shows the bug in a run, "" if nothing does; None where the clean program does not run."""
    before = _clean(program, ranks)
    if before is None:
        return None
    after = ranks.run(mutant.files, args=program.args)
    if after.status != "ok":
        return f"{after.status} {' '.join(after.error.strip().splitlines()[-1:])[:120]}"
    own = [rule for rule in RULES if rule.code in mutant.rules]
    found = {one.rule.code for one in check_recorded(after.trace, own)}
    return " ".join(sorted(found - before))


@cache
def _clean(program: Program, ranks: TwoRanks) -> frozenset[str] | None:
    outcome: Outcome = ranks.run(program.files, args=program.args)
    if outcome.status != "ok":
        return None
    return frozenset(one.rule.code for one in check_recorded(outcome.trace, RULES))

"""The verdicts on the right and the sabotaged migrations of `shim/sabotages.py`, as a table.

    python tests/sabotage_verdicts.py [--only TEXT] [--out FILE]

Each is run on forked ranks (a few seconds on idle cores), the program before once for each of its
arguments. What all of them come to is kept in `shim/sabotage/verdicts.md`; `shim/test_sabotages.py`
runs a sample. Exit code 1: a verdict is not the one that is wanted.
"""

from __future__ import annotations

import argparse
import functools
import shlex
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "runtime"))

from comparing import compared
from migrations import replaced
from proof_tables import HEADER, Result
from sabotages import HERE, OTHER, PROVEN, REFUTED, RIGHT, SABOTAGED, Migration, Setup
from two_ranks import Outcome, TwoRanks


class Runner:
    """Runs migrations; what the program before does is run once for each setup."""

    def __init__(self, two_ranks: TwoRanks) -> None:
        self.two_ranks = two_ranks
        self.before = functools.cache(self._before)

    def _run(self, text: str, setup: Setup) -> Outcome:
        first = self.before(Setup(ranks=setup.ranks)) if setup.resumed else None
        return self.two_ranks.run(
            text,
            args=shlex.split(setup.args),
            world=setup.ranks,
            parameters=True,
            continuing=first,
        )

    def _before(self, setup: Setup) -> Outcome:
        return self._run((HERE / "before.py").read_text(encoding="utf-8"), setup)

    def result(self, name: str, migration: Migration) -> Result:
        """What a proof says of a migration; its exit code is that of `fsdplint prove`."""
        text = replaced((HERE / "after.py").read_text(encoding="utf-8"), migration.edits)
        before = self.before(migration.setup)
        after = self._run(text, migration.setup)
        result = Result(name, seconds=after.seconds)
        assert before.status == "ok", str(before)
        result.steps = len(before.records[0].measures)
        verdict = REFUTED
        if after.status != "ok":
            result.failed = [f"it {after.status}"]
        else:
            comparison = compared(before, after)
            result.failed = [check.name for check in comparison.differences]
            if comparison.same_training:
                verdict = OTHER if result.failed else PROVEN
        result.verdicts = Counter([verdict])
        result.code = int(verdict != PROVEN)
        return result


def is_right(result: Result, migration: Migration) -> bool:
    """Whether the verdict is the wanted one, for the wanted reason."""
    named = any(name.startswith(migration.complaint) for name in result.failed)
    return migration.verdict in result.verdicts and (named or migration.verdict == PROVEN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="those whose name has this in it")
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    options = parser.parse_args()
    print(HEADER.replace("fixes", "verdict"), file=options.out)
    wrong = []
    two_ranks = TwoRanks()
    runner = Runner(two_ranks)
    try:
        for kind, migrations in (("right", RIGHT), ("sabotaged", SABOTAGED)):
            for name, migration in migrations.items():
                if options.only not in name:
                    continue
                result = runner.result(f"{kind}: {name}", migration)
                print(result.line(), file=options.out, flush=True)
                if not is_right(result, migration):
                    wrong.append(f"{name}: {migration.verdict} is wanted")
    finally:
        two_ranks.close()
    print(*wrong, sep="\n", file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

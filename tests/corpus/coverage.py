"""How much of public programs a check reaches: the coverage of each listed program, as a table.

    python tests/corpus/coverage.py CHECKOUTS TABLE... [--all] [--gaps]

CHECKOUTS has a folder OWNER+NAME for each repository. TABLE has the columns repo, commit, path and role, with
tabs between them; the rows with the role "user-script" count. Each run is `fsdplint --coverage FILE` as a user
starts it, in the folder of the repository. With `--gaps`, each call that is not covered is printed. At the end stand
the share of the calls that are covered, and the number of calls and files for each reason.

Nothing of the programs is kept. Not a test: `pytest` does not collect it.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

TIME_LIMIT = 600  # seconds for one run
ROLE = "user-script"


def programs(
    checkouts: Path, tables: Iterable[Path], every_role: bool
) -> Iterator[tuple[str, str]]:
    """The repository and path of each listed program that is checked out."""
    for table in tables:
        with table.open(newline="") as lines:
            for row in csv.DictReader(lines, delimiter="\t"):
                if every_role or row["role"] == ROLE:
                    if (folder_of(checkouts, row["repo"]) / row["path"]).is_file():
                        yield row["repo"], row["path"]


def folder_of(checkouts: Path, repository: str) -> Path:
    return checkouts / repository.replace("/", "+")


def coverage(folder: Path, path: str) -> dict[str, Any] | None:
    """The report of `--coverage` for a file; None if there is none."""
    command = [sys.executable, "-m", "fsdplint", "check", path, "--no-cache", "--coverage"]
    try:
        result = subprocess.run(
            [*command, "--output-format", "json"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
        )
        report: dict[str, Any] = json.loads(result.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        return None
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--all", action="store_true", help="programs of every role")
    parser.add_argument("--gaps", action="store_true", help="print each call that is not covered")
    args = parser.parse_args()
    sites = covered = 0
    reasons: Counter[str] = Counter()
    files: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for repository, path in programs(args.checkouts.resolve(), args.tables, args.all):
        report = coverage(folder_of(args.checkouts.resolve(), repository), path)
        if report is None:
            print(f"{repository}\t{path}\tno report", flush=True)
            continue
        sites += report["sites"]
        covered += report["covered"]
        print(f"{repository}\t{path}\t{report['covered']}/{report['sites']}", flush=True)
        for gap in (gap for file in report["files"] for gap in file["gaps"]):
            reasons[gap["gap"]] += 1
            files[gap["gap"]].add((repository, path))
            if args.gaps:
                print(f"\t{gap['location']['row']}\t{gap['name']}\t{gap['reason']}")
    print(f"covered {covered} of {sites} ({100 * covered / max(sites, 1):.1f} %)")
    for reason, number in reasons.most_common():
        print(f"{reason}\t{number} in {len(files[reason])} files")


if __name__ == "__main__":
    main()

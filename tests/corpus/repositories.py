"""What the check finds in whole repositories and in each listed file of them, as a table.

    python tests/corpus/repositories.py TABLE CHECKOUTS [--out FILE] [--labels FILE] [--verdicts FILE]

TABLE has the columns repo, commit and path, with tabs between them. CHECKOUTS has a folder OWNER+NAME for
each repository, at that commit. Each run is `fsdplint` as a user starts it, in a process with a time bound:
over the repository and over each file, each with `--target-torch 2.13` and without. The rows with the severity
info and those of FSDP9xx are notices: they are in the table of findings, and have no verdict.

With `--labels`, a file of JSON lines, places that must stay silent are compared with the findings.
With `--verdicts`, the table of judged findings, new and vanished findings are printed.

Nothing of the programs is kept. Not a test: `pytest` does not collect it. `verdicts.tsv` has a verdict for each
finding, by reading the code: "true" where the program breaks the contract with the consequence that the finding
names in a configuration that a user can run, "false", or "arguable" where that depends on something unknown. The
false ones were mended: they count as vanished.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

NEWEST = "2.13"
REPOSITORY, FILES = SCOPES = ("repository", "files")
TIME_LIMIT = 600  # seconds for one run
TOO_LARGE = "FSDP904"
NOTICE = "info"
MIGRATION = "FSDP2"  # how the codes of the migration begin


@dataclass(frozen=True, order=True)
class Row:
    """One finding of one run; `checked` is the file, or empty where it is the whole repository."""

    repository: str
    commit: str
    checked: str
    target: str
    file: str
    line: int
    rule: str
    severity: str
    message: str

    @property
    def place(self) -> tuple[str, str, int, str]:
        return self.repository, self.file, self.line, self.rule

    @property
    def notice(self) -> bool:
        return self.severity == NOTICE or self.rule.startswith("FSDP9")


@dataclass(frozen=True)
class Repository:
    name: str
    commit: str
    files: tuple[str, ...]
    folder: Path


def read_table(table: Path, checkouts: Path) -> list[Repository]:
    """The repositories of a table that are checked out, the smallest first, each with its files."""
    files: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    with table.open(newline="") as lines:
        for line in csv.DictReader(lines, delimiter="\t"):
            files[line["repo"], line["commit"]].append(line["path"])
    found = [
        Repository(name, commit, tuple(paths), checkouts / name.replace("/", "+"))
        for (name, commit), paths in files.items()
    ]
    found = [one for one in found if one.folder.is_dir()]
    return sorted(found, key=lambda one: sum(1 for _ in one.folder.rglob("*.py")))


def check(repository: Repository, path: str, target: str) -> tuple[list[Row], float, str]:
    """The findings in a file, or in the whole repository; the seconds; what went wrong."""
    command = [sys.executable, "-m", "fsdplint", "check", path or ".", "--no-cache"]
    command += ["--output-format", "json", *(["--target-torch", target] if target else [])]
    started = time.perf_counter()
    try:
        result = subprocess.run(
            command, cwd=repository.folder, capture_output=True, text=True, timeout=TIME_LIMIT
        )
        records = json.loads(result.stdout)
    except subprocess.TimeoutExpired:
        return [], TIME_LIMIT, "too slow"
    except json.JSONDecodeError:
        return [], time.perf_counter() - started, result.stderr.strip()[-300:] or "no output"
    rows = [_row(repository, path, target, record) for record in records]
    return rows, time.perf_counter() - started, ""


def _row(repository: Repository, checked: str, target: str, record: dict[str, Any]) -> Row:
    file = Path(str(record["filename"]))
    where = file.relative_to(repository.folder) if file.is_absolute() else file
    return Row(
        repository.name,
        repository.commit,
        checked,
        target,
        where.as_posix(),
        record["location"]["row"],
        str(record["code"]),
        str(record["severity"]),
        " ".join(str(record["message"]).split()),
    )


def check_all(
    repositories: Iterable[Repository], scopes: Iterable[str], targets: Iterable[str]
) -> Iterator[Row]:
    """Every finding of every run; a line about each repository goes to the standard error."""
    for scope in scopes:
        for target in targets:
            for repository in repositories:
                yield from _check_scope(repository, scope, target)


def _check_scope(repository: Repository, scope: str, target: str) -> Iterator[Row]:
    paths = ("",) if scope == REPOSITORY else repository.files
    took = 0.0
    too_large = 0
    for path in paths:
        rows, seconds, failure = check(repository, path, target)
        took += seconds
        too_large += any(row.rule == TOO_LARGE for row in rows)
        if failure:
            print(f"{repository.name} {path} {target}: {failure}", file=sys.stderr)
        yield from rows
    line = f"{scope}\t{target or 'as required'}\t{repository.name}\t{took:.1f} s for {len(paths)}"
    print(f"{line}\t{TOO_LARGE}: {too_large}", file=sys.stderr, flush=True)


def loud_traps(rows: Iterable[Row], labels: Path) -> tuple[int, list[str]]:
    """How many places must stay silent, and the findings at them."""
    findings: defaultdict[tuple[str, str, int], set[str]] = defaultdict(set)
    repositories = set()
    for row in rows:
        repositories.add(row.repository)
        findings[row.repository, row.file, row.line].add(f"{row.rule} ({row.severity})")
    silent, loud = 0, []
    for text in labels.read_text().splitlines():
        label = json.loads(text)
        if label["kind"] != "trap" or label["repo"] not in repositories:
            continue
        silent += 1
        place = label["repo"], label["path"], label["line"]
        wrong = findings[place]
        if label.get("scope") != "silent":  # no defect, although the migration rewrites it
            wrong = {one for one in wrong if not one.startswith(MIGRATION)}
        if wrong:
            loud.append(f"{place}: {', '.join(sorted(wrong))}: {label['expected']}")
    return silent, loud


def compare(rows: Iterable[Row], verdicts: Path) -> None:
    """Print the findings without a verdict, the verdicts without a finding or notice, and a count."""
    rows = list(rows)
    repositories = {row.repository for row in rows}
    with verdicts.open(newline="") as lines:
        judged = {
            (one["repository"], one["file"], int(one["line"]), one["rule"]): one["verdict"]
            for one in csv.DictReader(lines, delimiter="\t")
            if one["repository"] in repositories
        }
    found = {row.place for row in rows if not row.notice}
    for place in sorted(found - judged.keys()):
        print("new     ", *place)
    for place in sorted(judged.keys() - {row.place for row in rows}):
        print("vanished", *place, judged[place])
    print(dict(Counter(judged[place] for place in found & judged.keys())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="part of a repository's name")
    parser.add_argument("--scope", choices=SCOPES, help="whole repositories or single files alone")
    parser.add_argument("--target", help="this target alone; empty for what the project requires")
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--verdicts", type=Path)
    parser.add_argument("--found", type=Path, nargs="+", help="tables of --out: run nothing")
    args = parser.parse_args()
    repositories = [
        one for one in read_table(args.table, args.checkouts.resolve()) if args.only in one.name
    ]
    scopes = [args.scope] if args.scope else SCOPES
    targets = [NEWEST, ""] if args.target is None else [args.target]
    if args.found:
        rows = [row for table in args.found for row in read_rows(table)]
    else:
        rows = written(args.out, check_all(repositories, scopes, targets))
    if args.labels:
        silent, loud = loud_traps(rows, args.labels)
        print(*loud, f"{silent - len(loud)} of {silent} traps silent", sep="\n")
    if args.verdicts:
        compare(rows, args.verdicts)


def written(path: Path | None, rows: Iterable[Row]) -> list[Row]:
    """The rows, which are written as they come."""
    if path is None:
        return list(rows)
    found = []
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(field.name for field in fields(Row))
        for row in rows:
            writer.writerow(astuple(row))
            file.flush()
            found.append(row)
    return found


def read_rows(path: Path) -> list[Row]:
    found = []
    with path.open(newline="") as file:
        for values in csv.DictReader(file, delimiter="\t"):
            line = int(values.pop("line"))
            found.append(Row(line=line, **values))
    return found


if __name__ == "__main__":
    main()

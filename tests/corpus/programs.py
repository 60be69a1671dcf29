"""The tool on programs that others wrote: what it finds in each, as a table.

    python tests/corpus/programs.py INDEX [--out FILE]

INDEX has a line for each program: kind, role and absolute path of the file, with tabs between
them. Every file is checked by itself, and a line is written for each finding. What the migration
makes of them: `migrations.py`.

Nothing of the programs is kept. Not a test: `pytest` does not collect it.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fsdplint.config.command_line import CommandLine
from fsdplint.engine.operations import check_files
from fsdplint.engine.session import Session

WORKERS = 2
NEWEST = CommandLine(target_torch="2.13")  # whatever the programs' own requirements say


@dataclass(frozen=True)
class Program:
    kind: str
    role: str
    path: Path
    project: Path

    @property
    def name(self) -> str:
        return f"{self.project.name}/{self.path.relative_to(self.project)}"


def read_index(index: Path, depth: int) -> list[Program]:
    """The programs of an index; `depth` is the number of parts of a project's own path."""
    programs = []
    for line in index.read_text().splitlines():
        kind, role, path = line.split("\t")
        programs.append(Program(kind, role, Path(path), Path(*Path(path).parts[: depth + 1])))
    return programs


def check(program: Program) -> list[list[str]]:
    """A line for each finding in the file by itself, and for what went wrong."""
    started = time.perf_counter()
    try:
        result = check_files(Session([program.path], NEWEST))
    except Exception as error:
        return [[program.name, "0", "crash", repr(error), "", ""]]
    took = f"{time.perf_counter() - started:.2f}"
    lines = [[program.name, "0", "problem", one.message, "", took] for one in result.problems]
    for one in result.findings:
        place = one.site.location()
        where = (
            f"{program.project.name}/{Path(one.site.path).resolve().relative_to(program.project)}"
        )
        lines.append([where, str(place.line), one.rule.code, one.message, one.blocker or "", took])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--depth", type=int, default=3, help="parts of a project's path")
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    args = parser.parse_args()
    programs = read_index(args.index, args.depth)
    with multiprocessing.Pool(WORKERS) as pool:
        results = pool.imap(check, programs)
        writer = csv.writer(args.out, delimiter="\t", lineterminator="\n")
        for lines in results:
            writer.writerows(lines)
            args.out.flush()


if __name__ == "__main__":
    main()

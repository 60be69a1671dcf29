"""The tool on programs that others wrote: checked, migrated, and what came of it as a table.

    python tests/corpus/programs.py check INDEX [--out FILE]
    python tests/corpus/programs.py fix INDEX [--out FILE]

INDEX has a line for each program: kind, role and absolute path of the file, with tabs between
them. `check` looks at every file by itself and writes a line for each finding; `fix` fixes a copy
of each project (the first `--depth` parts of the path), twice, and writes a line for each file with
the verdict: migrated, blocked (and by what), nothing to migrate, or what went wrong.

Nothing of the programs is kept. Not a test: `pytest` does not collect it.
"""

from __future__ import annotations

import argparse
import ast
import csv
import multiprocessing
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fsdplint.decoding import decode
from fsdplint.rule import Finding
from fsdplint.run import Changes, Run
from fsdplint.settings import CommandLine

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
        result = Run([program.path], NEWEST).check()
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


def migrate(project: tuple[Path, list[Program]]) -> list[list[str]]:
    """A line for each program of a project: what fixing the project made of it."""
    folder, programs = project
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary, folder.name)
        shutil.copytree(folder, copy, ignore=_only_python, symlinks=True)
        try:
            return list(_migrated(copy, folder, programs))
        except Exception as error:
            return [[p.kind, p.role, p.name, "crash", repr(error)] for p in programs]


def _migrated(copy: Path, folder: Path, programs: list[Program]) -> Iterator[list[str]]:
    changes = _fix(copy)
    mended = {Path(f.site.path) for f in changes.applied if _fsdp1(f.rule.code)}
    broken = [path for path in changes.texts if not _parses(path)]
    again = _fix(copy)
    for program in programs:
        path = copy / program.path.relative_to(folder)
        left = [
            f for f in changes.result.findings if Path(f.site.path) == path and _fsdp1(f.rule.code)
        ]
        blockers = sorted({_reason(f) for f in left})
        if path in broken:
            verdict = "does not parse"
        elif path in again.texts:
            verdict = "not idempotent"
        elif not left and path not in mended:
            verdict = "nothing to migrate"
        elif not left:
            verdict = "migrated"
        else:
            verdict = "blocked"
        yield [program.kind, program.role, program.name, verdict, " | ".join(blockers)]


def _fix(folder: Path) -> Changes:
    changes = Run([folder], NEWEST).fix()
    for path, (_, after) in changes.contents.items():
        path.write_bytes(after)
    return changes


def _reason(finding: Finding) -> str:
    """What blocks the migration: the finding itself, or what its help says in parentheses."""
    found = re.search(r"because of.*?\((.*)\)\.?$", finding.help, re.DOTALL)
    return finding.blocker or (found[1] if found else finding.message)


def _fsdp1(code: str) -> bool:
    return code.startswith("FSDP2")


def _parses(path: Path) -> bool:
    try:
        ast.parse(decode(path.read_bytes())[0])
    except SyntaxError:
        return False
    return True


def _only_python(folder: str, names: list[str]) -> Iterable[str]:
    return [n for n in names if not n.endswith((".py", ".toml")) and not Path(folder, n).is_dir()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["check", "fix"])
    parser.add_argument("index", type=Path)
    parser.add_argument("--depth", type=int, default=3, help="parts of a project's path")
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    args = parser.parse_args()
    programs = read_index(args.index, args.depth)
    with multiprocessing.Pool(WORKERS) as pool:
        if args.what == "check":
            results = pool.imap(check, programs)
        else:
            projects: dict[Path, list[Program]] = {}
            for program in programs:
                projects.setdefault(program.project, []).append(program)
            results = pool.imap(migrate, projects.items())
        writer = csv.writer(args.out, delimiter="\t", lineterminator="\n")
        for lines in results:
            writer.writerows(lines)
            args.out.flush()


if __name__ == "__main__":
    main()

"""The assisted migration on programs that others wrote: what it rewrites, and what it leaves open.

    python tests/corpus/assisted.py INDEX [--out FILE] [--diffs FOLDER] [--only TEXT]

INDEX is that of `migrations.py`. Each program is migrated as `fsdplint migrate --assist --fix --project
--unsafe-fixes FILE` would, in a copy of its project. The result is examined: each changed file parses,
none of them names FSDP1 any more, and a second run changes nothing. The verdicts:

    whole      nothing blocks the program
    partly     some code raises until a person decides; everything else is rewritten
    blocked    a blocker of the whole program, or the files of others, keep all as it is
    no FSDP1   the file uses nothing of FSDP1, or another program of the project has its files
    defect     one of the points above does not hold, or a crash

Nothing of the programs is kept, except for the diffs where a folder for them is given. Not a test:
`pytest` does not collect it.
"""

from __future__ import annotations

import argparse
import ast
import csv
import functools
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from migrations import _fsdp1_left, _only_code
from programs import NEWEST, WORKERS, Program, read_index

from fsdplint.engine.migration import Migrated, MigrationRun
from fsdplint.report.unified_diff import unified_diff
from fsdplint.source.decoding import decode

HEADER = ["program", "verdict", "places", "rewritten", "uses", "blockers or defects"]


def table(programs: tuple[Path, list[Program]], diffs: Path | None) -> list[list[str]]:
    """A line for each program of a project."""
    project, members = programs
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary, project.name)
        shutil.copytree(project, copy, ignore=_only_code, symlinks=True)
        (copy / ".git").mkdir(exist_ok=True)  # its root, as in a checkout
        known: set[str] = set()
        rows = []
        for program in members:
            file = copy / program.path.relative_to(project)
            if os.path.realpath(file) in known:
                rows.append([program.name, "no FSDP1", "0", "0", "0", "see another program"])
                continue
            try:
                row = _row(program.name, file, copy, diffs, known)
            except Exception as error:
                row = ["defect", "", "", "", f"crash: {type(error).__name__}: {error}"]
            rows.append([program.name, *row])
        return rows


def _row(name: str, file: Path, copy: Path, diffs: Path | None, known: set[str]) -> list[str]:
    migrated = _migrate(file)
    sections = migrated.report.sections
    blocked = [one for one in sections if one.is_blocked]
    written = [one for one in sections if not one.is_blocked]
    known |= {os.path.realpath(path) for one in sections for path in one.files}
    reasons = sorted({f"{x.place.line} {x.reason}" for one in blocked for x in one.obstacles})
    places = sum(len(one.open) for one in written)
    done, every = (sum(one.sites[number] for one in written) for number in (0, 1))
    numbers = [str(places), str(done), str(every)]
    if diffs is not None and migrated.contents:
        _keep_diff(migrated, copy, diffs / f"{name.replace('/', '__')}.diff")
    defects = _defects(file, migrated)
    if defects:
        return ["defect", *numbers, " | ".join(defects)]
    if blocked:
        return ["blocked", *numbers, " | ".join(reasons)]
    if not sections:
        left = sorted(set(_fsdp1_left(file, file.read_bytes())))
        return ["blocked" if left else "no FSDP1", *numbers, " | ".join(left)]
    return ["partly" if places else "whole", *numbers, ""]


def _migrate(file: Path) -> Migrated:
    run = MigrationRun([file], NEWEST.target_torch, project=True, unsafe=True, assist=True)
    return run.migrate(fix=True)


def _defects(file: Path, migrated: Migrated) -> list[str]:
    """What is wrong with the result, which is on disk only while it is looked at."""
    found = []
    for path, (_, after) in migrated.contents.items():
        try:
            ast.parse(decode(after)[0])
        except SyntaxError as error:
            found.append(f"{path.name} does not parse: {error}")
            continue
        left = sorted(set(_fsdp1_left(path, after)))
        if left:
            found.append(f"{path.name} still has {', '.join(left)}")
    for path, (_, after) in migrated.contents.items():
        path.write_bytes(after)
    try:
        if migrated.contents:
            again = _migrate(file)
            found += [f"{path.name} is changed again by a second run" for path in again.contents]
    finally:
        for path, (before, _) in migrated.contents.items():
            path.write_bytes(before)
    return found


def _keep_diff(migrated: Migrated, copy: Path, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pieces = [
        unified_diff(os.path.relpath(path, copy), decode(old)[0], decode(new)[0])
        for path, (old, new) in migrated.contents.items()
    ]
    file.write_text("".join(pieces))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--depth", type=int, default=3, help="parts of a project's path")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    parser.add_argument("--diffs", type=Path, help="a folder for the diffs")
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    args = parser.parse_args()
    projects: dict[Path, list[Program]] = {}
    for program in read_index(args.index, args.depth):
        if program.kind == "fsdp1" and program.role.startswith("user"):
            if args.only in program.name:
                projects.setdefault(program.project, []).append(program)
    writer = csv.writer(args.out, delimiter="\t", lineterminator="\n")
    writer.writerow(HEADER)
    verdicts: Counter[str] = Counter()
    uses: Counter[str] = Counter()
    with multiprocessing.Pool(args.workers) as pool:
        job = functools.partial(table, diffs=args.diffs)
        for rows in pool.imap_unordered(job, projects.items()):
            writer.writerows(rows)
            args.out.flush()
            for _, verdict, places, done, every, _ in rows:
                verdicts[verdict] += 1
                uses.update(places=int(places or 0), done=int(done or 0), all=int(every or 0))
    print(dict(verdicts), file=sys.stderr)
    print(
        f"{uses['done']} of {uses['all']} uses rewritten, {uses['places']} places", file=sys.stderr
    )


if __name__ == "__main__":
    main()

"""The migration on programs that others wrote: which are migrated whole, and what blocks the others.

    python tests/corpus/migrations.py INDEX [--out FILE] [--diffs FOLDER] [--only TEXT]

INDEX has a line for each program: kind, role and absolute path of the file, with tabs between them;
those of kind "fsdp1" whose role begins with "user" are looked at. Each is fixed as
`fsdplint --fix --project FILE` would, in a copy of its project (the first `--depth` parts of the path),
and the result is examined: it parses, nothing of FSDP1 is left in any file that it changes nor in the
program's own, ruff finds no undefined or unused name that was not there before, and a second run changes
nothing. The verdicts:

    migrated   all of that holds
    blocked    nothing was written; every blocker is named
    no FSDP1   the file uses nothing of FSDP1 (a configuration, a helper that only speaks of it)
    defect     one of the points above does not hold, or a crash; the last column says which

Nothing of the programs is kept, except for the diffs where a folder for them is given. Not a test:
`pytest` does not collect it. `migrations.tsv` is what it gave last, with `--out`, for 139 files of public
projects: some 25 minutes on two cores.
"""

from __future__ import annotations

import argparse
import ast
import csv
import functools
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from programs import NEWEST, WORKERS, Program, read_index

from fsdplint.diagnostics.finding import Finding, Safety
from fsdplint.engine.changes import Changes
from fsdplint.engine.migration import MigrationRun
from fsdplint.engine.operations import fix_files
from fsdplint.engine.session import Session
from fsdplint.migration.names import PREFIX, fsdp1_name
from fsdplint.report.unified_diff import unified_diff
from fsdplint.source.decoding import decode
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.qualified_names import canonical, references

NAMES = "F401,F811,F821,F841"  # ruff's rules on unused and undefined names
HEADER = ["program", "verdict", "files changed", "blockers or defects"]


def table(programs: tuple[Path, list[Program]], diffs: Path | None) -> list[list[str]]:
    """A line for each program of a project."""
    project, members = programs
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary, project.name)
        shutil.copytree(project, copy, ignore=_only_code, symlinks=True)
        (copy / ".git").mkdir(exist_ok=True)  # its root, as in a checkout
        known: dict[Path, list[str]] = {}
        return [
            [
                program.name,
                *verdict(
                    program.name, copy / program.path.relative_to(project), copy, diffs, known
                ),
            ]
            for program in members
        ]


def verdict(
    name: str, file: Path, copy: Path, diffs: Path | None, known: dict[Path, list[str]]
) -> list[str]:
    """The verdict on one program, how many files change, blockers or defects.

    known: the verdicts on files that belong to a migration which was looked at before.
    """
    if file not in known:
        known[file] = _verdict(name, file, copy, diffs, known)
    return known[file]


def _verdict(
    name: str, file: Path, copy: Path, diffs: Path | None, known: dict[Path, list[str]]
) -> list[str]:
    try:
        changes = fix_files(Session([file], replace(NEWEST, project=True)))
        migrated = [one for one in changes.applied if _of_migration(one)]
        found = [*changes.result.findings, *changes.result.elsewhere]
        left = [one for one in found if _of_migration(one)]
        if left:
            blockers = sorted({reason for one in left for reason in _reasons(one, copy)})
            result = ["blocked", "0", " | ".join(blockers)]
            known.update((Path(one.site.path), result) for one in left)
            return result
        if not migrated:
            used = sorted(set(_fsdp1_left(file, file.read_bytes())))
            if used:
                told = sorted(set(_reported(file, copy)))
                return ["blocked", "0", " | ".join(told) or f"not followed: {', '.join(used)}"]
            return ["no FSDP1", "0", ""]
        if diffs is not None:
            _keep_diff(changes, copy, diffs / f"{name.replace('/', '__')}.diff")
        defects = _defects(file, changes)
    except Exception as error:
        return ["defect", "", f"crash: {type(error).__name__}: {error}"]
    result = ["defect" if defects else "migrated", str(len(changes.texts)), " | ".join(defects)]
    known.update((Path(path), result) for path in changes.texts)
    return result


def _defects(file: Path, changes: Changes) -> list[str]:
    """What is wrong with the result, which is on disk only while it is looked at."""
    found = []
    for path, (before, after) in changes.contents.items():
        try:
            ast.parse(decode(after)[0])
        except SyntaxError as error:
            found.append(f"{path.name} does not parse: {error}")
            continue
        new = _name_errors(path, after) - _name_errors(path, before)
        found += [f"{path.name}: {message}" for message in sorted(new)]
        left = sorted(set(_fsdp1_left(path, after)))
        if left:
            found.append(f"{path.name} still has {', '.join(left)}")
    if not any(os.path.realpath(path) == os.path.realpath(file) for path in changes.contents):
        left = sorted(set(_fsdp1_left(file, file.read_bytes())))
        if left:
            found.append(f"{file.name} itself still has {', '.join(left)}")
    for path, (_, after) in changes.contents.items():
        path.write_bytes(after)
    try:
        again = fix_files(Session([file], replace(NEWEST, project=True)))
        found += [f"{path.name} is changed again by a second run" for path in again.texts]
    finally:
        for path, (before, _) in changes.contents.items():
            path.write_bytes(before)
    return found


def _fsdp1_left(path: Path, content: bytes) -> Iterator[str]:
    source = Source.from_bytes(str(path), content)
    for item in bindings_of(source).imports():
        name = fsdp1_name(canonical(item.full))
        if name is not None:
            yield f"an import of {name}"
    for _, _, full in references(source, PREFIX):
        name = fsdp1_name(full)
        if name is not None:
            yield name


def _name_errors(path: Path, content: bytes) -> Counter[str]:
    command = [
        *(
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--isolated",
            "--no-cache",
            "--select",
            NAMES,
            "--output-format",
            "json",
        ),
        *("--exit-zero", "--stdin-filename", path.name, "-"),
    ]
    done = subprocess.run(command, input=content, capture_output=True, check=True)
    return Counter(
        f"{one['code']} {re.sub(r' line [0-9]+|_shard[.](?=checkpoint)', '', one['message'])}"
        for one in json.loads(done.stdout)
        if "to test for availability" not in one["message"]  # another library's stays in its `try`
    )


def _reported(file: Path, copy: Path) -> Iterator[str]:
    """What `fsdplint migrate` names where no finding belongs to a migration: a framework's settings,
    names of FSDP1 that nothing in the program uses.
    """
    for section in (
        MigrationRun([file], NEWEST.target_torch, project=True).migrate().report.sections
    ):
        for one in section.obstacles:
            name = os.path.relpath(os.path.realpath(one.place.path), os.path.realpath(copy))
            yield f"{name}:{one.place.line} {one.reason}"


def _of_migration(finding: Finding) -> bool:
    return finding.rule.grouped


def _reasons(finding: Finding, copy: Path) -> Iterator[str]:
    at = finding.site.location()
    name = os.path.relpath(os.path.realpath(at.path), os.path.realpath(copy))
    if finding.blocker:
        yield f"{name}:{at.line} {finding.blocker}"
    elif finding.fix is not None and finding.fix.safety is Safety.UNSAFE:
        yield f"{name}:{at.line} unsafe: {finding.fix.title}"
    elif finding.fix is not None:
        yield f"{name}:{at.line} the fix was not applied"
    elif not finding.help.startswith("Not migrated, because of"):
        yield f"{name}:{at.line} {finding.message}"
    else:
        yield finding.help.replace(f"{os.path.realpath(copy)}{os.sep}", "").replace(f"{copy}/", "")


def _keep_diff(changes: Changes, copy: Path, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pieces = [
        unified_diff(os.path.relpath(path, copy), old, new)
        for path, (old, new) in changes.texts.items()
    ]
    file.write_text("".join(pieces))


def _only_code(folder: str, names: list[str]) -> Iterable[str]:
    kept = (".py", ".toml", ".cfg")
    return [
        name
        for name in names
        if name == ".git" or (not name.endswith(kept) and not Path(folder, name).is_dir())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--depth", type=int, default=3, help="parts of a project's path")
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    parser.add_argument("--diffs", type=Path, help="a folder for the diffs of what was migrated")
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    args = parser.parse_args()
    projects: dict[Path, list[Program]] = {}
    for program in read_index(args.index, args.depth):
        if (
            program.kind == "fsdp1"
            and program.role.startswith("user")
            and args.only in program.name
        ):
            projects.setdefault(program.project, []).append(program)
    writer = csv.writer(args.out, delimiter="\t", lineterminator="\n")
    writer.writerow(HEADER)
    counts: Counter[str] = Counter()
    with multiprocessing.Pool(WORKERS) as pool:
        job = functools.partial(table, diffs=args.diffs)
        for lines in pool.imap(job, projects.items()):
            writer.writerows(lines)
            args.out.flush()
            counts.update(verdict for _, verdict, _, _ in lines)
    print(dict(counts), file=sys.stderr)


if __name__ == "__main__":
    main()

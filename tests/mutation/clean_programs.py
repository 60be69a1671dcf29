"""The programs that bugs are planted into: fixtures, good examples of rules, and listed public programs."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import fixture_runs
from mutation_operator import Files

from fsdplint.registry.example_files import examples_of
from fsdplint.registry.examples import without_markers
from fsdplint.registry.rules import all_rules

FOLDERS = ("fsdp1", "fsdp1_cuda", "fsdp2")
ROLE = "user-script"


@dataclass(frozen=True)
class Program:
    """A program without known bugs.

    Attributes:
        name: how tables call it.
        files: its texts, the script first.
        folder: where the files are on disk, if their project has further files.
        target_torch: the torch to check it for.
        runs: whether it runs on two CPU ranks.
        args: its arguments.
    """

    name: str
    files: Files
    folder: Path | None = None
    target_torch: str | None = None
    runs: bool = False
    args: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)


@cache
def fixtures() -> Sequence[Program]:
    """The training programs in `fixtures`."""
    cases = {"/".join(Path(c.path).parts[:2]): c for c in reversed(fixture_runs.CASES)}
    found = []
    for name, paths in fixture_runs.programs(FOLDERS).items():
        case = cases.get(name)
        script = (
            Path(case.path) if case else next((p for p in paths if "train" in p.name), paths[0])
        )
        ordered = [script, *(path for path in paths if path != script)]
        files = {str(p.relative_to(script.parent)): fixture_runs.before(p) for p in ordered}
        args = case.args if case else ()
        found.append(Program(name.removesuffix(".py"), files, runs=True, args=args))
    return found


@cache
def good_examples() -> Sequence[Program]:
    """The good examples of the rules."""
    found = []
    for rule in all_rules():
        for one in examples_of(rule).good:
            if one.suffix == ".py":
                files = {"program.py": without_markers(one.code)}
                name = f"{rule.code}/{one.name}"
                program = Program(name, files, None, one.target_torch, runs=not one.skip)
                found.append(program)
    return found


def listed(checkouts: Path, tables: Iterable[Path]) -> Iterator[Program]:
    """The scripts that tables list (columns repo, path and role) and that are checked out.

    A folder OWNER+NAME holds each repository. The files there are only read.
    """
    seen = set()
    for table in tables:
        with table.open(newline="") as lines:
            for row in csv.DictReader(lines, delimiter="\t"):
                folder = checkouts.resolve() / row["repo"].replace("/", "+")
                path = folder / row["path"]
                if row["role"] == ROLE and path not in seen and path.is_file():
                    seen.add(path)
                    text = path.read_text(encoding="utf-8", errors="replace")
                    yield Program(f"{row['repo']}/{row['path']}", {row["path"]: text}, folder)


def whole(folder: Path) -> Iterator[Program]:
    """The programs of a folder that has one folder for each. The files there are only read."""
    for one in sorted(path for path in folder.resolve().iterdir() if path.is_dir()):
        files = {str(path.relative_to(one)): path.read_text() for path in sorted(one.rglob("*.py"))}
        if files:
            yield Program(one.name, files, one)

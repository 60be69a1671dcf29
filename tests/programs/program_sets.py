"""Programs whose authors did not know fsdplint: which of them migrate, and which bugs a check finds.

    python tests/programs/program_sets.py migrations [NAME ...]
    python tests/programs/program_sets.py bugs [NAME ...]

`migrations` migrates copies of the programs in `fixtures/programs/migrations`, runs the result on two
CPU ranks, and compares what it prints with `expected.txt`, which the original printed; where that
differs, with what the original prints on this processor. The table has
the largest relative difference of two numbers: the two versions of FSDP add up in another order, and
many of the programs compute in bfloat16.

`bugs` checks the programs in `fixtures/programs/bugs`. The folder `clean` has a program, and each
folder beside it the files that one bug changes. `bugs.tsv` has the place of each bug, and what a run
on two ranks shows.

`migrations.tsv` and `bugs.tsv` beside this file have the last results, which the tests compare.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fsdplint

HERE = Path(__file__).parent
PROGRAMS = HERE.parents[1] / "fixtures" / "programs"
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
SECONDS = 240.0  # of a run
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc_per_node", "2")


@dataclass(frozen=True)
class Bug:
    """A bug that is planted into a program.

    Attributes:
        program, folder: the names of the program's folder and of the bug's.
        path, line: the place of the bug.
        kind: the bug in a few words.
        symptom: what a run shows.
    """

    program: str
    folder: str
    path: str
    line: str
    kind: str
    symptom: str


def names(kind: str) -> list[str]:
    """The names of the programs of a kind ("migrations" or "bugs")."""
    return sorted(path.name for path in (PROGRAMS / kind).iterdir() if path.is_dir())


def bugs(program: str) -> list[Bug]:
    """The bugs that are planted into a program."""
    text = (PROGRAMS / "bugs" / program / "bugs.tsv").read_text(encoding="utf-8")
    return [Bug(program, *line.split("\t")[:5]) for line in text.splitlines() if line]


def results(kind: str) -> dict[str, str]:
    """The last results of a kind, by the names of programs or of bugs."""
    with open(HERE / f"{kind}.tsv", encoding="utf-8", newline="") as file:
        return {row["name"]: row["result"] for row in csv.DictReader(file, delimiter="\t")}


# Migrations ---------------------------------------------------------------------------------------


def migrate(name: str, folder: Path) -> str:
    """Migrate a copy of a program in a folder: "whole", or the names of its blockers."""
    copy = folder / name
    shutil.copytree(PROGRAMS / "migrations" / name, copy)
    (copy / "pyproject.toml").touch()
    fixed = fsdplint.fix(copy, select="FSDP2")
    fixed.write()
    found = fsdplint.check(copy, select="FSDP2").findings
    blockers = {code for one in found for code in one.blocker_codes}
    return ", ".join(sorted(blockers)) or ("blocked" if found else "whole")


def run(name: str, folder: Path) -> str:
    """Run a migrated copy, and compare what it prints: see `compare`, or "fails"."""
    after = output_of(folder / name)
    if after is None:
        return "fails"
    expected = (folder / name / "expected.txt").read_text(encoding="utf-8")
    result = compare(expected, after)
    if result != "equal":
        original = folder / "original" / name
        shutil.copytree(PROGRAMS / "migrations" / name, original)
        before = output_of(original)  # another processor may round differently
        result = result if before is None else compare(before, after)
    return result


def output_of(program: Path) -> str | None:
    """What a program prints on two ranks; None if it fails."""
    arguments = (program / "args.txt").read_text(encoding="utf-8").split()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-m", *TORCHRUN, "train.py", *arguments]
    for _ in range(2):  # gloo may abort at the end of a process
        done = subprocess.run(
            command, cwd=program, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
        if done.returncode == 0:
            return done.stdout
    return None


def compare(before: str, after: str) -> str:
    """Compare two outputs: "equal", "differs", or the largest difference of two numbers.

    The difference is relative to the number, or absolute for numbers below 1.
    """
    if before == after:
        return "equal"
    if NUMBER.sub("0", before) != NUMBER.sub("0", after):
        return "differs"
    pairs = zip(map(float, NUMBER.findall(before)), map(float, NUMBER.findall(after)), strict=True)
    return f"{max(abs(one - two) / max(1.0, abs(one)) for one, two in pairs):.0e}"


# Bugs ---------------------------------------------------------------------------------------------


def findings(folder: Path) -> set[tuple[str, str]]:
    """The findings in a program but for those about FSDP1's names: codes and messages."""
    found = fsdplint.check(folder).findings
    return {(one.code, one.message) for one in found if not one.code.startswith("FSDP2")}


def check_clean(program: str, folder: Path) -> set[tuple[str, str]]:
    """The findings in a copy of a clean program."""
    copy = folder / program
    shutil.copytree(PROGRAMS / "bugs" / program / "clean", copy)
    (copy / "pyproject.toml").touch()
    return findings(copy)


def check_bug(bug: Bug, folder: Path, clean: set[tuple[str, str]]) -> str:
    """The codes of the findings that a bug adds to a copy of its program; "missed" if there are none."""
    copy = folder / f"{bug.program}-{bug.folder}"
    shutil.copytree(PROGRAMS / "bugs" / bug.program / "clean", copy)
    shutil.copytree(PROGRAMS / "bugs" / bug.program / bug.folder, copy, dirs_exist_ok=True)
    (copy / "pyproject.toml").touch()
    codes = {code for code, message in findings(copy) if (code, message) not in clean}
    return ", ".join(sorted(codes)) or "missed"


# Command line -------------------------------------------------------------------------------------


def _migrations(chosen: list[str]) -> Iterator[dict[str, str]]:
    for name in chosen or names("migrations"):
        with tempfile.TemporaryDirectory() as folder:
            result = migrate(name, Path(folder))
            output = run(name, Path(folder)) if result == "whole" else "-"
        yield {"name": name, "result": result, "output": output}


def _bugs(chosen: list[str]) -> Iterator[dict[str, str]]:
    for name in chosen or names("bugs"):
        with tempfile.TemporaryDirectory() as folder:
            clean = check_clean(name, Path(folder))
            codes = ", ".join(sorted({code for code, _ in clean})) or "none"
            yield {"name": f"{name}/clean", "result": codes, "kind": "no bug"}
            for bug in bugs(name):
                result = check_bug(bug, Path(folder), clean)
                yield {"name": f"{name}/{bug.folder}", "result": result, "kind": bug.kind}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("kind", choices=("migrations", "bugs"))
    parser.add_argument("names", nargs="*", help="the programs; by default all")
    parser.add_argument("--write", action="store_true", help="write the table beside this file")
    options = parser.parse_args()
    rows = []
    for row in (_migrations if options.kind == "migrations" else _bugs)(options.names):
        print("\t".join(row.values()), flush=True)
        rows.append(row)
    if options.write:
        with open(HERE / f"{options.kind}.tsv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()

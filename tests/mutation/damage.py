"""Which damage of small edits a check finds, where only several ranks show the damage.

    python tests/mutation/damage.py [NAME ...] [--edits N] [--seed S] [--jobs N]

Each edit of `small_edits.py` is run on two ranks and on one. It is *damage* if the program on one rank ends and
prints as before, and on two ranks hangs, raises, prints other numbers, ends with other weights or writes
other files: what a test on one rank does not show, and what fsdplint is for. The edit is *found* if a check
reports what it does not report in the clean program. No rule and no operator chooses the edits, so nothing can
be tuned to them; a miss is read at its line and judged by hand. `docs/mutation.md` has the results.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))

from clean_programs import Program
from mutant_verdicts import clean, new_findings
from mutation_operator import Files
from program_sets import PROGRAMS, names
from small_edits import Edit, edits
from two_ranks import Outcome, TwoRanks

# Errors of any edit of a Python program; a test on one rank shows most of them.
OF_PYTHON = re.compile(
    r"^(NameError|UnboundLocalError|AttributeError|TypeError|KeyError|IndexError|SyntaxError|ImportError)",
    re.MULTILINE,
)
PYTHON = "an error of Python"
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|nan|inf")
TOLERANCE = 1e-4
SECONDS = 30.0  # of a run


@dataclass(frozen=True)
class Verdict:
    """What an edit does.

    Attributes:
        program: the name of the clean program.
        edit: the edit.
        damage: what two ranks show.
        found: the codes of new findings.
    """

    program: str
    edit: Edit
    damage: str
    found: tuple[str, ...]


def clean_programs(chosen: Sequence[str]) -> list[Program]:
    """The clean programs of `fixtures/programs/bugs`."""
    found = []
    for name in chosen or names("bugs"):
        folder = PROGRAMS / "bugs" / name / "clean"
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        given = folder / "args.txt"
        words = given.read_text(encoding="utf-8").split() if given.exists() else []
        script = words.pop(0) if words and words[0].endswith(".py") else "train.py"
        texts = {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in paths}
        files = {script: texts.pop(script), **texts}
        found.append(Program(name, files, runs=True, args=tuple(words)))
    return found


def damage(before: Outcome, after: Outcome) -> str:
    """What a run shows that the clean program's run does not show; "" if nothing."""
    if after.status != "ok":
        if OF_PYTHON.search(after.error):
            return PYTHON
        last = (after.error.strip().splitlines() or [""])[-1]
        return f"{'hangs' if after.stuck else after.status} {last[:100]}"
    numbers = [NUMBER.findall(one.stdout) for one in (before, after)]
    if len(numbers[0]) != len(numbers[1]):
        return "prints more or less"
    for old, new in zip(*numbers, strict=True):
        if _differ(float(old), float(new)):
            return f"prints {new} for {old}"
    if _files(before) != _files(after):
        return "other files"
    return _other_weights(before.parameters, after.parameters)


def _differ(old: float, new: float) -> bool:
    return old != new and not abs(old - new) <= TOLERANCE * max(abs(old), abs(new))


def _files(outcome: Outcome) -> dict[str, int]:
    assert outcome.folder is not None
    work = outcome.folder / "work"
    return {str(p.relative_to(work)): p.stat().st_size for p in work.rglob("*") if p.is_file()}


def _other_weights(before: dict[str, Any], after: dict[str, Any]) -> str:
    for name in before.keys() & after.keys():
        old, new = before[name], after[name]
        if old.shape != new.shape or not old.allclose(new, rtol=TOLERANCE, equal_nan=True):
            return f"other weights: {name}"
    return "" if before.keys() == after.keys() else "other parameters"


def verdicts(program: Program, ranks: TwoRanks, number: int, seed: int) -> Iterator[Verdict]:
    """The verdicts on a sample of the edits that are damage."""
    chosen = list(edits(program.files))
    random.Random(f"{seed} {program.name}").shuffle(chosen)
    two, again, one = (_run(program.files, program, ranks, world) for world in (2, 2, 1))
    if two.status != "ok" or one.status != "ok" or damage(two, again):
        print(f"{program.name}: not run, or other numbers in each run", file=sys.stderr)
        return
    for edit in chosen[:number]:
        if damage(one, _run(edit.files, program, ranks, 1)):
            continue
        shown = damage(two, _run(edit.files, program, ranks, 2))
        if shown and shown != PYTHON:
            yield Verdict(program.name, edit, shown, new_findings(edit.files, program))


def _run(files: Files, program: Program, ranks: TwoRanks, world: int) -> Outcome:
    data = {name: text for name, text in files.items() if not name.endswith(".py")}
    return ranks.run(
        files, args=program.args, world=world, parameters=True, timeout=SECONDS, beside=data
    )


def _of_program(job: tuple[str, int, int]) -> list[Verdict]:
    name, number, seed = job
    (program,) = clean_programs([name])
    ranks = TwoRanks()
    try:
        found = []
        for one in verdicts(program, ranks, number, seed):
            found.append(one)
            print(line(one), file=sys.stderr, flush=True)
        return found
    finally:
        ranks.close()
        clean.cache_clear()


def line(one: Verdict) -> str:
    """A line of the list of verdicts."""
    place = f"{one.program}/{one.edit.file}:{one.edit.line}"
    return f"{'found' if one.found else 'MISSED'}\t{one.edit.kind}\t{place}\t{one.damage}\t{' '.join(one.found)}"


def table(found: Sequence[Verdict]) -> Iterator[str]:
    """The lines of a table in Markdown by the kind of the edit."""
    total = Counter(one.edit.kind for one in found)
    hits = Counter(one.edit.kind for one in found if one.found)
    yield "| edit | damage | found |"
    yield "| --- | --- | --- |"
    for kind, count in sorted(total.items(), key=lambda pair: -pair[1]):
        yield f"| {kind} | {count} | {hits[kind]} |"
    yield f"| all | {total.total()} | {hits.total()} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("programs", nargs="*", help="names in fixtures/programs/bugs")
    parser.add_argument("--edits", type=int, default=20, help="so many edits of a program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    jobs = [(one, options.edits, options.seed) for one in options.programs or names("bugs")]
    found: list[Verdict] = []
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
        for some in pool.imap_unordered(_of_program, jobs):
            found.extend(some)
    print(*table(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

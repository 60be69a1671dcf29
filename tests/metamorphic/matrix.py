"""The reach of the interpreter, measured by refactorings that keep the meaning of programs.

    python tests/metamorphic/matrix.py [--refactoring NAME ...] [--sample N] [--pairs N] [--misses]
    python tests/metamorphic/matrix.py --migrations [...]
    python tests/metamorphic/matrix.py --run [--sample N]

Each refactoring is applied to each bad and good example in `fixtures/rules`: the findings have to survive,
and the good program has to stay silent. With `--migrations` it is applied to the FSDP1 programs in
`fixtures`, and the migration has to stay whole. With `--run` a sample of the results is run on two ranks,
and has to end as the original does. `docs/metamorphic.md` has the tables.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import refactorings  # noqa: F401 (registers them)
from outcomes import RIGHT, Outcome, outcome
from refactoring import REFACTORINGS, Refactoring, chain
from same_meaning import differences
from subjects import Program, examples, migrations

KINDS = ("bad", "good", "migration")


def chosen(options: argparse.Namespace) -> list[Refactoring]:
    """The refactorings that are asked for; with `--pairs` so many pairs of them, by a fixed seed."""
    unknown = set(options.refactoring) - set(REFACTORINGS)
    if unknown:
        sys.exit(f"not a refactoring: {', '.join(sorted(unknown))}")
    single = [
        r for r in REFACTORINGS.values() if r.name in options.refactoring or not options.refactoring
    ]
    if not options.pairs:
        return single
    names = random.Random(0).sample(
        [(a, b) for a in single for b in REFACTORINGS.values() if a.theme != b.theme], options.pairs
    )
    return [chain(a, b) for a, b in names]


def sampled(programs: Sequence[Program], size: int | None, seed: str) -> list[Program]:
    """A sample that is the same in every run, another one for each refactoring."""
    if size is None or size >= len(programs):
        return list(programs)
    return random.Random(seed).sample(programs, size)


TASKS: list[tuple[Refactoring, list[Program]]] = []  # what a forked process finds by its number


def outcomes_of_task(number: int) -> list[Outcome]:
    made, programs = TASKS[number]
    return [one for one in (outcome(made, program) for program in programs) if one is not None]


def table(found: Sequence[Outcome]) -> Iterator[str]:
    """The lines of a table in Markdown, one a refactoring, the least that survives first."""
    names = {"bad": "findings survived", "good": "silence kept", "migration": "migrations whole"}
    kinds = [kind for kind in KINDS if any(one.program.kind == kind for one in found)]
    yield "| refactoring | " + " | ".join(names[kind] for kind in kinds) + " |"
    yield "| --- |" + " --- |" * len(kinds)
    groups = [(name, list(group)) for name, group in groupby(found, lambda one: one.refactoring)]
    groups.sort(key=lambda pair: sum(one.missed == RIGHT for one in pair[1]) / len(pair[1]))
    for name, group in [*groups, ("all", list(found))]:
        yield f"| {name} | " + " | ".join(_cell(group, kind) for kind in kinds) + " |"


def misses(found: Sequence[Outcome]) -> Iterator[str]:
    """One line for each miss: the refactoring, the program and what is missing or false."""
    for one in found:
        if one.missed != RIGHT:
            yield f"{one.refactoring}\t{one.program.kind}\t{one.program.name}\t{one.missed}"


def _cell(group: Sequence[Outcome], kind: str) -> str:
    own = [one for one in group if one.program.kind == kind]
    right = sum(one.missed == RIGHT for one in own)
    return f"{right} of {len(own)}" if own else "-"


def run(made: Sequence[Refactoring], programs: Sequence[Program], size: int | None) -> int:
    """Run samples on two ranks; says which end otherwise than the original."""
    from two_ranks import TwoRanks

    ranks, count, wrong = TwoRanks(), 0, 0
    try:
        for one in made:
            for program in sampled(programs, size, f"run {one.name}"):
                said = differences(one, program, ranks)
                if said is None:
                    continue
                count += 1
                if said:
                    wrong += 1
                    print(f"{one.name}\t{program.name}\t{said}", flush=True)
    finally:
        ranks.close()
    print(f"{count - wrong} of {count} refactored programs end as the original does")
    return int(bool(wrong))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--refactoring", action="append", default=[], help="only this one; may be repeated"
    )
    parser.add_argument("--sample", type=int, help="so many programs for each refactoring")
    parser.add_argument(
        "--pairs", type=int, default=0, help="so many pairs in place of single ones"
    )
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    parser.add_argument(
        "--migrations", action="store_true", help="the migrations of FSDP1 programs"
    )
    parser.add_argument("--run", action="store_true", help="run on two ranks")
    parser.add_argument("--misses", action="store_true", help="list the misses below the table")
    parser.add_argument(
        "--show", action="store_true", help="print the refactored programs, no table"
    )
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    made = chosen(options)
    source = migrations if options.migrations else examples
    programs = [program for program in source() if options.only in program.name]
    if options.run:
        return run(made, [program for program in programs if program.runs], options.sample)
    tasks = [(one, sampled(programs, options.sample, one.name)) for one in made]
    if options.show:
        for one, own in tasks:
            for program in own:
                for name, text in (one.apply(program.files) or {}).items():
                    print(f"# {one.name} {program.name} {name}\n{text}")
        return 0
    TASKS.extend(tasks)
    found: list[Outcome] = []
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for own in pool.imap(outcomes_of_task, range(len(tasks))):
            found.extend(own)
    print(*table(found), sep="\n")
    if options.misses:
        print()
        print(*misses(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

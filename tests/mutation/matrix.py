"""How many planted bugs a check finds: a table by operator, by rule and by program.

    python tests/mutation/matrix.py [--operator NAME ...] [--sites N] [--misses] [--jobs N]
    python tests/mutation/matrix.py --examples --sample 40 [...]
    python tests/mutation/matrix.py --checkouts FOLDER --table TABLE [--table ...] --sample 20 [...]
    python tests/mutation/matrix.py --folders FOLDER [...]
    python tests/mutation/matrix.py --run --sites 1

Each operator plants the bug of a rule at each site in clean programs: the training programs in `fixtures`,
the good examples of the rules, the listed scripts of public repositories, or whole programs, one in each folder
of FOLDER; the files there are only read. A bug is found if a finding of the rule appears that the clean program does not have. With `--run` the mutants run on
two ranks, and have to fail or to show the bug to the recorder. `docs/mutation.md` has the tables.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import operators  # noqa: F401 (registers them)
from clean_programs import Program, fixtures, good_examples, listed, whole
from mutant_verdicts import FOUND, MISSED, UNREACHED, Verdict, clean, verdict
from mutation_operator import OPERATORS, Mutant, Operator

TOO_SLOW = "too slow"


def sampled(program: Program, own: Sequence[Operator], sites: int | None) -> list[Mutant]:
    """The mutants of a program, so many of each kind for each operator, the same in every run."""
    found: list[Mutant] = []
    for one in own:
        kinds = defaultdict(list)
        for mutant in one.mutants(program.files):
            kinds[mutant.kind].append(mutant)
        for kind, group in kinds.items():
            size = len(group) if sites is None else min(sites, len(group))
            found += random.Random(f"{one.name} {kind} {program.name}").sample(group, size)
    return found


PROGRAMS: list[Program] = []  # what a forked process finds by its number
OPTIONS = argparse.Namespace()


def verdicts_of(number: int) -> list[Verdict]:
    """The verdicts on the mutants of one program."""
    program = PROGRAMS[number]
    own = [one for one in OPERATORS.values() if _is_asked_for(one)]
    mutants = sampled(program, own, OPTIONS.sites)
    if OPTIONS.limit is not None and len(mutants) > OPTIONS.limit:
        mutants = random.Random(program.name).sample(mutants, OPTIONS.limit)
    found = []
    signal.signal(signal.SIGALRM, _expired)
    try:
        signal.alarm(OPTIONS.seconds)
        if mutants:
            clean(program)
        for mutant in mutants:
            signal.alarm(OPTIONS.seconds)
            found.append(verdict(mutant, program))
            if OPTIONS.progress:
                print(*misses(found[-1:], every=True), sep="\n", file=sys.stderr, flush=True)
    except TimeoutError:
        print(f"{program.name}: {TOO_SLOW}", file=sys.stderr)
    finally:
        signal.alarm(0)
        clean.cache_clear()
    return found


def _expired(*_: object) -> None:
    raise TimeoutError


def _is_asked_for(one: Operator) -> bool:
    return one.name in OPTIONS.operator or not OPTIONS.operator


def table(
    found: Sequence[Verdict], by: str, groups: Iterable[tuple[str, list[Verdict]]]
) -> Iterator[str]:
    """The lines of a table in Markdown, the least that is found first."""
    yield f"| {by} | found | missed | not covered |"
    yield "| --- | --- | --- | --- |"
    rows = sorted(groups, key=lambda pair: (_share(pair[1]), pair[0]))
    for name, group in [*rows, ("all", list(found))]:
        counts = [sum(one.result == kind for one in group) for kind in (FOUND, MISSED, UNREACHED)]
        yield f"| {name} | {counts[0]} of {len(group)} | {counts[1]} | {counts[2]} |"


def _share(group: Sequence[Verdict]) -> float:
    return sum(one.result == FOUND for one in group) / len(group)


def grouped(found: Sequence[Verdict], by: str) -> Iterable[tuple[str, list[Verdict]]]:
    groups = defaultdict(list)
    for one in found:
        keys = {
            "operator": one.mutant.operator,
            "rule": " ".join(one.mutant.rules),
            "program": one.program,
            "site": one.mutant.kind,
        }
        if keys[by]:
            groups[keys[by]].append(one)
    return groups.items()


def confirmed(found: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts without mutants that were missed and show nothing in a run either."""
    from mutant_runs import shown
    from two_ranks import TwoRanks

    by_name = {program.name: program for program in PROGRAMS}
    ranks, kept = TwoRanks(), []
    try:
        for one in found:
            program = by_name[one.program]
            end: str | None = None
            if one.result == MISSED and program.runs:
                end = shown(one.mutant, program, ranks)
            if end != "":
                kept.append(one if end is None else replace(one, shown=end))
    finally:
        ranks.close()
    print(f"{len(found) - len(kept)} mutants show nothing on two ranks and are not counted\n")
    return kept


def misses(found: Sequence[Verdict], *, every: bool = False) -> Iterator[str]:
    """One line for each bug that is not found, or for every bug."""
    for one in found:
        if every or one.result != FOUND:
            mutant = one.mutant
            place = f"{one.program}\t{mutant.file}:{mutant.line}"
            rules = " ".join(mutant.rules)
            others = " ".join(one.others)
            what = f"{mutant.operator}\t{mutant.kind}\t{rules}"
            yield f"{one.result}\t{what}\t{place}\t{others}\t{one.shown}"


def programs(options: argparse.Namespace) -> list[Program]:
    if options.checkouts is not None:
        found = list(listed(options.checkouts, options.table))
    elif options.folders is not None:
        found = list(whole(options.folders))
    else:
        found = list(good_examples() if options.examples else fixtures())
    found = [one for one in found if options.only in one.name]
    if options.sample is not None and options.sample < len(found):
        return random.Random(0).sample(found, options.sample)
    return found


def show(chosen: Sequence[Program], own: Sequence[Operator], sites: int | None) -> None:
    """Print what each mutant changes."""
    import difflib

    for program in chosen:
        for mutant in sampled(program, own, sites):
            before, after = program.files[mutant.file], mutant.files[mutant.file]
            head = f"{mutant.operator} {program.name} {mutant.file}:{mutant.line}"
            lines = difflib.unified_diff(
                before.splitlines(), after.splitlines(), head, "", "", "", 1
            )
            print(*(line.rstrip() for line in lines), sep="\n")


def run(chosen: Sequence[Program], own: Sequence[Operator], sites: int | None) -> int:
    """Run the mutants on two ranks; print what each shows."""
    from mutant_runs import shown
    from two_ranks import TwoRanks

    ranks, count, wrong = TwoRanks(), 0, 0
    try:
        for program in chosen:
            for mutant in sampled(program, own, sites) if program.runs else ():
                end = shown(mutant, program, ranks)
                if end is None:
                    continue
                count += 1
                wrong += not end
                place = (
                    f"{mutant.operator}\t{mutant.kind}\t{program.name}\t{mutant.file}:{mutant.line}"
                )
                print(f"{place}\t{end or 'SHOWS NOTHING'}", flush=True)
    finally:
        ranks.close()
    print(f"{count - wrong} of {count} mutants fail or show their bug on two ranks")
    return int(bool(wrong))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--operator", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--examples", action="store_true", help="the good examples of the rules")
    parser.add_argument("--checkouts", type=Path, help="a folder of public repositories")
    parser.add_argument("--table", type=Path, action="append", default=[], help="lists of scripts")
    parser.add_argument("--folders", type=Path, help="a folder with one folder for each program")
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    parser.add_argument("--sample", type=int, help="so many programs")
    parser.add_argument("--sites", type=int, help="so many sites of each kind in a program")
    parser.add_argument("--limit", type=int, help="so many mutants of a program")
    parser.add_argument("--seconds", type=int, default=60, help="the most for one check")
    parser.add_argument("--by", action="append", default=[], help="operator, rule, program or site")
    parser.add_argument("--misses", action="store_true", help="list the bugs that are not found")
    parser.add_argument("--progress", action="store_true", help="print each verdict as it comes")
    parser.add_argument("--show", action="store_true", help="print the mutants, no table")
    parser.add_argument("--run", action="store_true", help="run the mutants on two ranks")
    parser.add_argument(
        "--confirm", action="store_true", help="run missed mutants; drop harmless ones"
    )
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    if unknown := set(options.operator) - set(OPERATORS):
        sys.exit(f"not an operator: {', '.join(sorted(unknown))}")
    OPTIONS.__dict__.update(vars(options))
    chosen = programs(options)
    own = [one for one in OPERATORS.values() if _is_asked_for(one)]
    if options.show:
        show(chosen, own, options.sites)
        return 0
    if options.run:
        return run(chosen, own, options.sites)
    PROGRAMS.extend(chosen)
    found: list[Verdict] = []
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for some in pool.imap(verdicts_of, range(len(chosen))):
            found.extend(some)
    if options.confirm:
        found = confirmed(found)
    for by in options.by or ("operator", "rule"):
        print(*table(found, by, grouped(found, by)), "", sep="\n")
    if options.misses:
        print(*misses(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Generates FSDP1 programs, migrates them, and compares both forms on two ranks.

    python tests/generated/campaign.py --programs 2000 --seed 1 [--keep DIR] [--log FILE]

Prints a line for each failure and a table at the end. With `--keep`, each failure is shrunk, and its
files before and after are written to a folder in DIR. The programs that are blocked, and those that
FSDP1 itself does not run, are kept there too. `--log` writes a line for each program.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent)]

from plain_ranks import PlainRanks  # noqa: E402
from program_features import Description, describe, differences  # noqa: E402
from program_outcomes import BLOCKED, FAILURES, REJECTED, Outcome, judge  # noqa: E402
from program_shrinking import shrink  # noqa: E402

DEVICE = "CAMPAIGN_DEVICE"  # of the programs for CUDA, for the processes of the pool
_RANKS: list[PlainRanks] = []


@dataclass
class Judged:
    """A program by its number, and what became of it; `shrunk` still shows the failure."""

    seed: int
    outcome: Outcome
    shrunk: Description | None = None
    smallest: Outcome | None = None
    features: Description = field(default_factory=dict)


def _ranks() -> PlainRanks:
    if not _RANKS:
        _RANKS.append(PlainRanks())
        _RANKS[0].device = os.environ.get(DEVICE, "cpu")
    return _RANKS[0]


def _one(task: tuple[int, bool]) -> Judged:
    seed, shrinks = task
    description = describe(seed)
    judged = Judged(seed, judge(description, _ranks()), features=differences(description))
    if judged.outcome.failed and shrinks:
        judged.shrunk, judged.smallest = shrink(description, judged.outcome, _ranks())
    return judged


def campaign(seeds: list[int], processes: int, *, shrinks: bool) -> Iterator[Judged]:
    """What becomes of each program, in no order."""
    tasks = [(seed, shrinks) for seed in seeds]
    context = multiprocessing.get_context("fork")
    with context.Pool(processes) as pool:
        yield from pool.imap_unordered(_one, tasks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="the number of the first program")
    parser.add_argument("--keep", type=Path, help="a folder for failures")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--log", type=Path, help="a file for a line of JSON for each program")
    parser.add_argument("--as-is", action="store_true", help="do not shrink what is kept")
    parser.add_argument("--only", help="a feature and its choice, such as strategy=no_shard")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="cuda: run only programs for CUDA"
    )
    options = parser.parse_args()
    os.environ[DEVICE] = options.device
    seeds = list(range(options.seed, options.seed + options.programs))
    if options.device == "cuda":
        seeds = [seed for seed in seeds if describe(seed)["device"] == "cuda"]
    if options.only:
        name, choice = options.only.split("=")
        seeds = [seed for seed in seeds if describe(seed)[name] == choice]
    started = time.monotonic()
    counts: collections.Counter[str] = collections.Counter()
    reasons: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    shrinks = options.keep is not None and not options.as_is
    for judged in campaign(seeds, options.processes, shrinks=shrinks):
        outcome = judged.outcome
        kind = "same to the bit" if outcome.exact else outcome.kind
        counts[kind] += 1
        if options.log:
            _log(options.log, judged, kind)
        if outcome.kind in (BLOCKED, REJECTED):
            for reason in outcome.reason.split("; "):
                reasons[outcome.kind][reason[:160]] += 1
        elif outcome.failed:
            print(judged.seed, outcome.kind, outcome.reason.splitlines()[-1][:300], flush=True)
            if judged.shrunk is not None:
                print("   ", differences(judged.shrunk), flush=True)
        if options.keep and (outcome.failed or outcome.kind in (BLOCKED, REJECTED)):
            _write(options.keep, judged)
    _report(counts, reasons, time.monotonic() - started)
    return 1 if any(kind in FAILURES for kind in counts) else 0


def _log(file: Path, judged: Judged, kind: str) -> None:
    outcome = judged.outcome
    line = {
        "seed": judged.seed,
        "outcome": kind,
        "seconds": round(outcome.seconds, 2),
        "reason": outcome.reason[:500],
        "features": judged.features,
    }
    with file.open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


def _write(folder: Path, judged: Judged) -> None:
    outcome = judged.smallest or judged.outcome
    place = folder / outcome.kind.replace(" ", "-") / str(judged.seed)
    for name, files in (("before", outcome.before), ("after", outcome.after)):
        for file, text in files.items():
            path = place / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    (place / "reason.txt").write_text(outcome.reason, encoding="utf-8")
    description = differences(judged.shrunk) if judged.shrunk is not None else judged.features
    (place / "description.json").write_text(json.dumps(description, indent=1), encoding="utf-8")


def _report(
    counts: collections.Counter[str],
    reasons: dict[str, collections.Counter[str]],
    seconds: float,
) -> None:
    total = counts.total()
    print(f"{total} programs in {seconds:.0f} s")
    for kind, count in counts.most_common():
        print(f"{count:6} {kind}")
    for kind, found in reasons.items():
        print(f"--- {kind}")
        for reason, count in found.most_common(40):
            print(f"{count:6} {reason}")


if __name__ == "__main__":
    sys.exit(main())

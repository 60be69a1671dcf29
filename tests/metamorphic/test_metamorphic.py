"""A fixed sample of refactored programs: findings survive, good programs stay silent, migrations stay whole.

`matrix.py` measures all of them. A miss that is known is in `known_misses.py` with its cause; one that is
mended fails here until it is taken out of the table.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import refactorings  # noqa: F401 (registers them)
from known_misses import MISSES
from outcomes import RIGHT, Outcome, outcome
from refactoring import REFACTORINGS, Refactoring, chain
from same_meaning import differences
from subjects import Program, examples, migrations
from two_ranks import TwoRanks

ALL = list(REFACTORINGS.values())
PROGRAMS = {program.name: program for program in (*examples(), *migrations())}
# Refactorings of each theme whose results are run, and migrations that are tried.
RUN = ("registry_decorator", "two_methods", "names_by_importlib", "partial_call", "body_in_file")
MIGRATED = (
    ("trainer_class", "fsdp1/always_wrap"),
    ("try_finally", "fsdp1/frozen_states"),
    ("name_alias", "fsdp1/side_input"),
)
every_refactoring = pytest.mark.parametrize("made", [pytest.param(r, id=r.name) for r in ALL])


def first_that_applies(made: Refactoring, programs: Sequence[Program]) -> Outcome | None:
    """The outcome for one program, the same in every run, which is not among the known misses."""
    for program in random.Random(made.name).sample(programs, 12):
        if (made.name, program.name) not in MISSES:
            found = outcome(made, program)
            if found is not None:
                return found
    return None


@every_refactoring
def test_a_finding_survives(made: Refactoring) -> None:
    found = first_that_applies(made, [p for p in examples() if p.kind == "bad"])
    assert found is None or found.missed == RIGHT, found


@every_refactoring
def test_a_good_program_stays_silent(made: Refactoring) -> None:
    found = first_that_applies(made, [p for p in examples() if p.kind == "good"])
    assert found is None or found.missed == RIGHT, found


@pytest.mark.parametrize(("name", "program"), MIGRATED)
def test_a_migration_stays_whole(name: str, program: str) -> None:
    found = outcome(REFACTORINGS[name], PROGRAMS[program])
    assert found is not None and found.missed == RIGHT, found


@pytest.mark.parametrize(("name", "program"), list(MISSES))
def test_a_known_miss_is_still_missed(name: str, program: str) -> None:
    found = outcome(REFACTORINGS[name], PROGRAMS[program])
    assert found is not None and found.missed != RIGHT, "it is found now: remove it from the table"


@pytest.mark.parametrize("name", RUN)
def test_the_meaning_is_kept(name: str, two_ranks: TwoRanks) -> None:
    program = PROGRAMS["FSDP103/optimizer_first"]
    assert differences(REFACTORINGS[name], program, two_ranks) == ""


def test_refactorings_can_be_chained() -> None:
    both = chain(REFACTORINGS["main_function"], REFACTORINGS["try_finally"])
    files = both.apply(PROGRAMS["FSDP103/optimizer_first"].files)
    assert files is not None
    assert "def main" in files["program.py"] and "finally:" in files["program.py"]
    found = outcome(both, PROGRAMS["FSDP103/optimizer_first"])
    assert found is not None and found.missed == RIGHT

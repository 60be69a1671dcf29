"""Programs whose authors did not know fsdplint still migrate, and their bugs are still found."""

from __future__ import annotations

from pathlib import Path

import program_sets
import pytest

BUGS = [bug for name in program_sets.names("bugs") for bug in program_sets.bugs(name)]


def test_the_tables_name_all_programs() -> None:
    assert list(program_sets.results("migrations")) == program_sets.names("migrations")
    expected = {f"{one.program}/{one.folder}" for one in BUGS}
    expected |= {f"{name}/clean" for name in program_sets.names("bugs")}
    assert program_sets.results("bugs").keys() == expected


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", program_sets.names("migrations"))
def test_a_program_migrates_as_before(name: str, tmp_path: Path) -> None:
    assert program_sets.migrate(name, tmp_path) == program_sets.results("migrations")[name]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.program}-{bug.folder}")
def test_a_bug_is_found_as_before(bug: program_sets.Bug, tmp_path: Path) -> None:
    clean = program_sets.check_clean(bug.program, tmp_path)
    known = program_sets.results("bugs")
    assert (", ".join(sorted({code for code, _ in clean})) or "none") == known[
        f"{bug.program}/clean"
    ]
    assert program_sets.check_bug(bug, tmp_path, clean) == known[f"{bug.program}/{bug.folder}"]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("loss 1.0000", "equal"),
        ("loss 1.0010", "1e-03"),
        ("loss 1.5000", "5e-01"),
        ("norm 1.0000", "differs"),
        ("loss 1.0000 2.0", "differs"),
    ],
)
def test_the_difference_of_two_outputs(after: str, expected: str) -> None:
    assert program_sets.compare("loss 1.0000", after) == expected

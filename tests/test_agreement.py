"""Every way of asking for fixes gives the same ones, whatever else is asked about."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from agreeing import TORCH, add_unrelated, disagreements
from command import run

from fsdplint.engine.migrator import migration_rules

FIXTURES = Path(__file__).parent.parent / "fixtures"
FOLDERS = ("fsdp1", "fsdp1_blocked", "fsdp2")
PROGRAMS = [
    path.relative_to(FIXTURES)
    for folder in FOLDERS
    for path in sorted((FIXTURES / folder).iterdir())
    if path.suffix == ".py" and path.name != "__init__.py"
]
CODES = ",".join(rule.code for rule in migration_rules())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_all_ways_agree(program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (tmp_path / ".git").mkdir()
    file = shutil.copy(FIXTURES / program, folder / program.name)
    assert disagreements(Path(file), add_unrelated(tmp_path)) == []


def test_programs_of_one_tree_do_not_decide_on_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is blocked in a folder blocks nothing in another, which has files of the same names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    own = tmp_path / "own"
    own.mkdir()
    text = (FIXTURES / "fsdp1" / "argparse_functions.py").read_text()
    (own / "train.py").write_text(text)
    (own / "utils.py").write_text("import train\n")
    add_unrelated(tmp_path)
    before = run("--diff", "--select", CODES, "--target-torch", TORCH, "own").stdout
    assert before
    after = run("--diff", "--select", CODES, "--target-torch", TORCH, ".").stdout
    assert after == before
    report = run("migrate", "--target-torch", TORCH, ".").output
    assert "own/train.py: can be migrated whole" in report
    assert "unrelated_program/train.py: not migrated" in report
    run("migrate", "--fix", "--target-torch", TORCH, ".")
    migrated = (own / "train.py").read_text()
    (own / "train.py").write_text(text)
    run("--fix", "--select", CODES, "--target-torch", TORCH, ".")
    assert (own / "train.py").read_text() == migrated != text
    assert run("--diff", "--select", CODES, "--target-torch", TORCH, "own").stdout == ""


def test_the_torch_of_an_unrelated_folder_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    own = tmp_path / "own"
    own.mkdir()
    shutil.copy(FIXTURES / "fsdp1" / "argparse_functions.py", own / "train.py")
    add_unrelated(tmp_path)
    alone = run("--diff", "--select", CODES, "own").stdout
    assert alone
    assert run("--diff", "--select", CODES, "unrelated_program", "own").stdout == alone
    assert "own/train.py: can be migrated" in run("migrate", "unrelated_program", "own").output

"""What a report overwrites: an earlier one of its kind, and no file of the user's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command import BAD, FIXED, FIXTURES, run

from fsdplint.config.options import FORMATS

SARIF = {"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "ruff"}}, "results": []}]}
USERS = {
    "train.py": BAD,
    "notes.md": "# Notes\n\nFound 3 good settings.\n",
    "notes.txt": "Found 3 bugs in it.\n",
    "page.html": "<!DOCTYPE html>\n<html><head><title>Proof of a theorem</title></head></html>\n",
    "config.json": '{"lr": 0.1}\n',
    "list.json": "[1, 2]\n",
    "ruff.sarif": json.dumps(SARIF),
    "ruff.txt": "train.py:1:1: F401 `os` imported but unused\nFound 1 error.\n",
    "tests.xml": '<?xml version="1.0"?>\n<testsuites name="pytest"></testsuites>\n',
    "data.csv": "/data/one\n/data/two\n",
    "binary": "\udcff\udcfe\x00",
}
REPORTS = {
    "check": ("train.py", "-o"),
    "fix": ("--fix", "train.py", "-o"),
    "add": ("--add-noqa", "train.py", "-o"),
    "diff": ("--diff", "train.py", "-o"),
    "files": ("--show-files", "train.py", "-o"),
    "settings": ("--show-settings", "train.py", "-o"),
    "statistics": ("--statistics", "train.py", "-o"),
    "baseline": ("baseline", "train.py", "-o"),
    "migration": ("migrate", "--fix", "train.py", "--report"),
    "run": ("run", "train.py", "-o"),
    "prove html": ("prove", "train.py", "--html"),
    "prove json": ("prove", "train.py", "--json"),
    "prove markdown": ("prove", "train.py", "--markdown"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    for name, text in USERS.items():
        (tmp_path / name).write_text(text, errors="surrogateescape")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", REPORTS)
def test_no_file_of_the_users_is_overwritten(folder: Path, kind: str) -> None:
    before = contents(folder)
    for name in USERS:
        if kind == "migration" and not name.endswith((".md", ".json")):
            continue
        result = run(*REPORTS[kind], name)
        assert result.exit_code == 2, (name, result.output)
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert f"{name} exists and is not a " in result.stderr
        assert "of fsdplint; use --force to overwrite it" in result.stderr
        assert contents(folder) == before


@pytest.mark.parametrize("kind", ["check", "fix", "diff", "statistics", "baseline", "migration"])
def test_by_force(folder: Path, kind: str) -> None:
    name = "notes.md" if kind == "migration" else "notes.txt"
    result = run(*REPORTS[kind], name, "--force")
    assert result.exit_code in (0, 1), result.output
    assert (folder / name).read_text() != USERS[name]
    assert (folder / "train.py").read_text() == (FIXED if kind == "fix" else BAD)


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("kind", ["found", "clean", "problem", "fixed"])
def test_a_report_is_overwritten_by_another_one(
    folder: Path, kind: str, output_format: str
) -> None:
    (folder / "clean.py").write_text("x = 1\n")
    (folder / "wrong.py").write_text("from torch.distributed.fsdp import fully_shard\n(")
    files = {"found": "train.py", "clean": "clean.py", "problem": "wrong.py", "fixed": "train.py"}
    fixing = ("--fix", "--show-fixes") if kind == "fixed" else ()
    command = (*fixing, files[kind], "-o", "out", "--output-format", output_format)
    first = run(*command)
    assert "overwrites" not in first.stderr
    second = run("clean.py", "-o", "out", "--output-format", "grouped")
    assert second.exit_code == 0, (output_format, (folder / "out").read_text(), second.stderr)


def test_a_report_of_the_coverage_is_one(folder: Path) -> None:
    for _ in range(2):
        assert run("--coverage", "--output-format", "json", "train.py", "-o", "out").exit_code == 0


@pytest.mark.parametrize("kind", ["diff", "files", "settings", "statistics", "baseline"])
def test_other_kinds_are_known_again(folder: Path, kind: str) -> None:
    for _ in range(2):
        result = run(*REPORTS[kind], "out")
        assert result.exit_code in (0, 1), result.output
    others = {*REPORTS} - {kind, "migration"} - ({"check", "fix", "add", "run"})
    for other in sorted(others - ({"statistics"} if kind == "check" else set())):
        assert run(*REPORTS[other], "out").exit_code == 2, other


def test_reports_of_migrations_and_of_proofs(folder: Path) -> None:
    text = (FIXTURES / "flat_script.py").read_text()
    (folder / "train.py").write_text(text)
    for name in ("out.md", "out.json"):
        for _ in range(2):
            assert run("migrate", "train.py", "--report", name).exit_code == 1
        assert run("train.py", "-o", name).exit_code == 2
    (folder / "clean.py").write_text("x = 1\n")
    for _ in range(2):  # nothing is to be proven, and nothing is run
        files = ("--html", "p.html", "--json", "p.json", "--markdown", "p.md")
        done = run("prove", "clean.py", *files)
        assert done.exit_code == 0, done.output
    assert run("baseline", "-o", "p.json").exit_code == 2


def test_an_empty_file_a_device_and_a_link(folder: Path, tmp_path: Path) -> None:
    (folder / "empty").touch()
    assert run("train.py", "-o", "empty").exit_code == 1
    assert run("train.py", "-o", os.devnull).exit_code == 1
    (folder / "link").symlink_to("notes.txt")
    assert run("train.py", "-o", "link").exit_code == 2


def test_the_baseline_of_a_project_lies_in_it(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (folder / "fsdplint-baseline.json").symlink_to(outside / "known.json")
    result = run("baseline", "train.py")
    assert result.exit_code == 2
    assert "fsdplint-baseline.json: a link leads out of the project" in result.stderr
    assert os.listdir(outside) == []
    assert run("baseline", "train.py", "-o", "fsdplint-baseline.json").exit_code == 0

"""Whose interrupted writes are completed, and by which runs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from command import BAD, FIXED, run
from journals import leave_journal

import fsdplint
from fsdplint.discovery.walk import JOURNAL_PREFIX
from fsdplint.edits import journal
from fsdplint.edits.recovery import recover
from fsdplint.edits.write import NewContent, WriteError, write

FOREIGN = "so it is not completed; check the files and remove it"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    (folder / "train.py").write_text(BAD)
    (folder / "half.py").write_text("old")
    monkeypatch.chdir(folder)
    return folder


def interrupted(project: Path) -> Path:
    return leave_journal(project, (project / "half.py", b"old", b"new"))


@pytest.mark.parametrize(
    "command",
    [
        ("--fix", "train.py"),
        ("--fix-only", "train.py"),
        ("--add-noqa", "train.py"),
        ("migrate", "--fix", "train.py"),
        ("migrate", "--annotate", "train.py"),
    ],
)
def test_a_run_that_writes_completes(project: Path, command: tuple[str, ...]) -> None:
    left = interrupted(project)
    result = run(*command)
    assert result.exit_code in (0, 1), result.output
    assert "half.py: written now; an earlier run was interrupted before it could" in result.stderr
    assert (project / "half.py").read_text() == "new"
    assert not left.exists()


@pytest.mark.parametrize(
    "command",
    [
        ("train.py",),
        ("--diff", "train.py"),
        ("--diff", "--fix", "train.py"),
        ("--show-files", "--fix", "train.py"),
        ("--show-settings", "--add-noqa", "train.py"),
        ("migrate", "train.py"),
        ("baseline", "train.py"),
        ("prove", "train.py"),
        ("run", "train.py"),
    ],
)
def test_a_run_that_writes_nothing_says_that_a_write_waits(
    project: Path, command: tuple[str, ...]
) -> None:
    left = interrupted(project)
    result = run(*command)
    assert result.exit_code == 2
    assert f"has to be completed ({left}): `fsdplint --fix .` completes it" in result.stderr
    assert left.exists()
    assert sorted(os.listdir()) == sorted([left.name, "half.py", "pyproject.toml", "train.py"])
    assert (project / "half.py").read_text() == "old"


def test_in_the_interface_for_python_writing_completes(project: Path) -> None:
    fixed = fsdplint.fix("train.py")
    interrupted(project)
    for work in (fsdplint.check, fsdplint.fix):
        with pytest.raises(fsdplint.api.FsdplintError, match="has to be completed"):
            work("train.py")
    assert (project / "half.py").read_text() == "old"
    fixed.write()
    assert (project / "half.py").read_text() == "new"
    assert (project / "train.py").read_text() == FIXED


def check_foreign(project: Path, why: str) -> None:
    """Nobody completes the journal, everybody warns of it, and the files are checked and fixed."""
    (left,) = journal.journals_in([project])
    before = (project / "half.py").read_bytes()
    checked = run("--output-format", "concise", "train.py")
    assert checked.exit_code == 1
    assert f"warning: this journal of an interrupted write {why}, {FOREIGN}" in checked.stderr
    assert "FSDP101" in checked.stdout
    assert any(why in line for line in fsdplint.check("train.py").warnings)
    fixed = run("--fix", "train.py")
    assert fixed.exit_code == 0
    assert FOREIGN in fixed.stderr
    assert (project / "train.py").read_text() == FIXED
    assert (project / "half.py").read_bytes() == before
    assert os.path.lexists(left)


def test_the_journal_of_a_copied_folder(project: Path, tmp_path: Path) -> None:
    interrupted(project)
    copy = tmp_path / "copy"
    shutil.copytree(project, copy)
    os.chdir(copy)
    check_foreign(copy, "belongs to another folder, of which this is a copy")
    assert (project / "half.py").read_text() == "old"


def test_the_journal_of_a_folder_of_the_same_name(project: Path, tmp_path: Path) -> None:
    """As where a repository is cloned to the path that its journal names."""
    interrupted(project)
    project.rename(tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "elsewhere", project)
    os.chdir(project)
    check_foreign(project, "belongs to another folder, of which this is a copy")


def test_a_journal_that_names_any_file(project: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("old")
    entry = {"path": str(victim), "old": "b2xk", "new": "bmV3"}
    (project / f"{JOURNAL_PREFIX}x.json").write_text(json.dumps({"version": 1, "files": [entry]}))
    check_foreign(project, "cannot be read by this version")
    assert victim.read_text() == "old"


def test_a_journal_behind_a_link(project: Path, tmp_path: Path) -> None:
    left = interrupted(project)
    left.rename(tmp_path / left.name)
    left.symlink_to(tmp_path / left.name)
    check_foreign(project, "is a link")


def test_no_journal_but_a_pipe(project: Path) -> None:
    os.mkfifo(project / f"{JOURNAL_PREFIX}x.json")
    check_foreign(project, "is not a regular file")


def test_the_journal_of_another_user(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(project)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    check_foreign(project, "belongs to another user")


def rewritten(left: Path, name: str) -> None:
    """Let a journal name another file."""
    header, body = left.read_text().splitlines()
    (entry,) = json.loads(body)
    left.write_text(f"{header}\n{json.dumps([{**entry, 'path': name}])}\n")


@pytest.mark.parametrize("name", ["../victim", "sub/../../victim", "link/victim", "alias", "ABS"])
def test_no_file_outside_of_the_folder_is_written(project: Path, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("old")
    (project / "sub").mkdir()
    (project / "link").symlink_to(tmp_path)
    (project / "alias").symlink_to(victim)
    left = interrupted(project)
    rewritten(left, str(victim) if name == "ABS" else name)
    result = run("--fix", "train.py")
    assert result.exit_code == 2
    assert "lies behind a link or outside of" in result.stderr
    assert victim.read_text() == "old"
    assert (project / "train.py").read_text() == BAD


def test_what_is_no_file_any_more(project: Path) -> None:
    left = interrupted(project)
    (project / "half.py").unlink()
    os.mkfifo(project / "half.py")
    result = run("--fix", "train.py")
    assert result.exit_code == 2
    assert f"half.py was changed since; put its content back, or remove {left}" in result.stderr


# Where the journal lies ----------------------------------------------------------------------------


def two_projects(tmp_path: Path) -> list[Path]:
    paths = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyproject.toml").touch()
        paths.append(tmp_path / name / "a.py")
        paths[-1].write_bytes(b"old")
    return paths


def test_a_write_over_two_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its journal lies above both, and a run in either finds it."""
    paths = two_projects(tmp_path)
    seen: list[str] = []
    real = os.replace

    def replace(source: str, target: str) -> None:
        seen.extend(journal.journals_in([tmp_path]))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    write([NewContent(str(path), b"old", b"new") for path in paths])
    assert len(set(seen)) == 1
    left = leave_journal(tmp_path, *((path, b"newer", b"newest") for path in paths))
    for path in paths:
        path.write_bytes(b"newer")
    with pytest.raises(journal.Interrupted, match="has to be completed"):
        recover([paths[1]])
    assert len(recover([paths[1]], writes=True).written) == 2
    assert [path.read_bytes() for path in paths] == [b"newest"] * 2
    assert not left.exists()


def test_what_others_leave_above_a_project_is_not_its_concern(tmp_path: Path) -> None:
    (path, _) = two_projects(tmp_path)
    (tmp_path / f"{JOURNAL_PREFIX}x.json").write_text("{}")
    (tmp_path / f"{JOURNAL_PREFIX}y.part").write_text("")
    assert recover([path]).foreign == []
    (path.parent / f"{JOURNAL_PREFIX}x.json").write_text("{}")
    assert len(recover([path]).foreign) == 1


def test_files_without_a_folder_for_their_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = two_projects(tmp_path)
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(tmp_path) and real(path, mode))
    with pytest.raises(WriteError, match="no folder that holds all of them is writable"):
        write([NewContent(str(path), b"old", b"new") for path in paths])
    assert [path.read_bytes() for path in paths] == [b"old"] * 2

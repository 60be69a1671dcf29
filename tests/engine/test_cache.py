"""What was found before is taken only where nothing that it depends on has changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsdplint.cli.main import main
from fsdplint.engine.cache import FOLDER, Cache
from fsdplint.engine.group_check import GroupChecker

LIB = """from torch.distributed.fsdp import fully_shard


def wrap(model):
    fully_shard(model)
"""
TRAIN = """import torch
from lib import wrap

model = torch.nn.Linear(2, 2)
wrap(model)
model.forward(torch.ones(1, 2))
"""
SECOND = """import torch
from torch.distributed.fsdp import fully_shard
from helpers import prepare

model = torch.nn.Linear(2, 2)
fully_shard(model)
prepare(model)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FSDPLINT_NO_CACHE")
    monkeypatch.chdir(tmp_path)
    texts = {"setup": "", "lib": LIB, "train": TRAIN, "second": SECOND, "helpers": "prepare = id\n"}
    for name, text in texts.items():
        write(tmp_path / f"{name}.py", text)
    return tmp_path


def write(path: Path, text: str) -> None:
    """Write a file as if that had been some time ago."""
    path.write_text(text)
    past = time.time_ns() - 10**10
    os.utime(path, ns=(past, past))


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first files of the groups that are checked."""
    seen: list[str] = []
    real = GroupChecker.check

    def check(self: GroupChecker, paths: list[Path]) -> object:
        seen.append(paths[0].name)
        return real(self, paths)

    monkeypatch.setattr(GroupChecker, "check", check)
    return seen


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["check", "--output-format=json", *arguments])
    assert result.exit_code in (0, 1), result.output
    return result.output


def test_the_second_time_nothing_is_examined(folder: Path, examined: list[str]) -> None:
    first = run(".")
    assert json.loads(first)
    assert sorted(examined) == ["lib.py", "second.py"]
    examined.clear()
    assert run(".") == first
    assert examined == []
    assert (folder / FOLDER / ".gitignore").read_text().splitlines()[-1] == "*"


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (lambda: write(Path("lib.py"), LIB + "\n"), ["lib.py"]),
        (lambda: write(Path("train.py"), TRAIN.replace("model.forward", "model")), ["lib.py"]),
        (lambda: write(Path("helpers.py"), "def prepare(m): m.forward(1)\n"), ["second.py"]),
        (lambda: Path("helpers.py").unlink(), ["second.py"]),
        (lambda: write(Path("setup.py"), "x = 1\n"), []),
        (
            lambda: write(Path("pyproject.toml"), '[tool.fsdplint]\nignore = ["FSDP101"]\n'),
            ["lib.py", "second.py"],
        ),
        (lambda: write(Path("requirements.txt"), "torch==2.6\n"), ["lib.py", "second.py"]),
        (
            lambda: write(Path("pyproject.toml"), '[project.scripts]\nrun = "lib:wrap"\n'),
            ["lib.py", "second.py"],
        ),
    ],
    ids=["content", "finding", "imported", "gone", "foreign", "settings", "target", "scripts"],
)
def test_what_changed_is_examined_again(
    folder: Path, examined: list[str], change: Callable[[], object], again: list[str]
) -> None:
    run(".")
    examined.clear()
    change()
    cached = run(".")
    assert sorted(examined) == again
    assert cached == run(".", "--no-cache")


CHOSEN = """import argparse
import yaml
import torch
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("config")
settings = yaml.safe_load(open(parser.parse_args().config))
model = torch.nn.Linear(2, 2)
if settings["mode"] == "shard":
    fully_shard(model)
print(settings["rate"], settings["steps"])
"""


def test_settings_files_among_which_a_program_chooses_count(
    folder: Path, examined: list[str]
) -> None:
    for name in ("lib", "train", "second", "helpers"):
        (folder / f"{name}.py").unlink()
    write(folder / "chosen.py", CHOSEN)
    for name in ("first", "other"):
        write(folder / f"{name}.yaml", "mode: shard\nrate: 1\nsteps: 2\n")
    run(".")
    for name in ("first", "other"):
        examined.clear()
        write(folder / f"{name}.yaml", "mode: plain\nrate: 1\nsteps: 2\n")
        run(".")
        assert examined == ["chosen.py"]
        examined.clear()
        run(".")
        assert examined == []


def test_a_file_that_was_missing_counts(folder: Path, examined: list[str]) -> None:
    (folder / "helpers.py").unlink()
    before = run(".")
    write(folder / "helpers.py", "def prepare(m):\n    m.forward(1)\n")
    examined.clear()
    after = run(".")
    assert examined == ["second.py"]
    assert len(json.loads(after)) > len(json.loads(before))


def test_a_file_that_is_just_being_written_is_not_remembered(
    folder: Path, examined: list[str]
) -> None:
    soon = time.time() + 3600  # however slow the machine is, the run begins before
    os.utime(folder / "train.py", (soon, soon))
    run(".")
    examined.clear()
    run(".")
    assert examined == ["lib.py"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"[]",
        lambda data: b"\x80\x04.",
        lambda data: data.replace(b'"message"', b'"massage"'),
        lambda data: data.replace(b"FSDP101", b"FSDP000"),
        lambda data: b'{"reads": {}, "given": [], "searched": {}, "result": {"asked": {}}}',
    ],
)
def test_a_damaged_cache_is_no_cache(
    folder: Path, examined: list[str], damage: Callable[[bytes], bytes]
) -> None:
    first = run(".")
    for path in (folder / FOLDER).glob("*.json"):
        path.write_bytes(damage(path.read_bytes()))
    examined.clear()
    assert run(".") == first
    assert "lib.py" in examined
    examined.clear()
    assert run(".") == first
    assert examined == []


def test_another_version_finds_anew(
    folder: Path, examined: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(".")
    examined.clear()
    monkeypatch.setattr("fsdplint.engine.cached.version", lambda: "another")
    run(".")
    assert sorted(examined) == ["lib.py", "second.py"]


def test_no_cache_writes_nothing(folder: Path) -> None:
    before = sorted(folder.iterdir())
    run(".", "--no-cache")
    assert sorted(folder.iterdir()) == before


def test_a_cache_elsewhere(folder: Path, examined: list[str]) -> None:
    run(".", "--cache-dir", "elsewhere/cache")
    assert not (folder / FOLDER).exists()
    write(folder / "pyproject.toml", '[tool.fsdplint]\ncache-dir = "elsewhere/cache"\n')
    run(".")
    assert len(list((folder / "elsewhere" / "cache").glob("*.json"))) == 4
    examined.clear()
    run(".")
    assert examined == []


def test_a_cache_in_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("USERPROFILE", str(folder / "home"))
    run(".", "--cache-dir", "~/given")
    assert [path.name for path in (folder / "home").iterdir()] == ["given"]
    assert not (folder / "~").exists()


def test_a_folder_of_something_else_is_no_cache(folder: Path) -> None:
    """Neither is anything put into it, nor anything old removed from it."""
    results = folder / "results"
    results.mkdir()
    for name in ("loss.json", f"{'0' * 32}.json", ".new-idea"):
        (results / name).write_text("{}")
        os.utime(results / name, (1, 1))
    before = sorted(os.listdir(results))
    run(".", "--cache-dir", "results")
    write(folder / "pyproject.toml", '[tool.fsdplint]\ncache-dir = "results"\n')
    run(".")
    assert sorted(os.listdir(results)) == before


def test_files_of_others_stay_in_a_cache(folder: Path) -> None:
    run(".")
    other = folder / FOLDER / "notes.json"
    other.write_text("{}")
    os.utime(other, (1, 1))
    Cache(folder / FOLDER).tidy()
    assert other.exists()


def test_a_link_that_leads_out_of_the_project_is_no_cache(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (folder / FOLDER).symlink_to(outside)
    (folder / "pyproject.toml").touch()
    run(".")
    assert os.listdir(outside) == []


def test_what_came_with_a_clone_is_not_believed(folder: Path, examined: list[str]) -> None:
    """The entries of a copy of the folder, at the same place and with all of its times."""
    run(".")
    folder.rename(folder.with_name("old"))
    shutil.copytree(folder.with_name("old"), folder)
    os.chdir(folder)
    examined.clear()
    run(".")
    assert sorted(examined) == ["lib.py", "second.py"]


def test_a_cache_that_cannot_be_written_is_nobodys_concern(folder: Path) -> None:
    (folder / FOLDER).write_text("a file")
    first = run(".")
    assert run(".") == first
    assert (folder / FOLDER).read_text() == "a file"


def test_entries_that_nobody_used_are_removed(folder: Path) -> None:
    run(".")
    entries = sorted((folder / FOLDER).glob("*.json"))
    left = folder / FOLDER / ".new-left"
    left.touch()
    for path in (entries[0], left):
        os.utime(path, (1, 1))
    Cache(folder / FOLDER).tidy()
    assert sorted((folder / FOLDER).glob("*.json")) == entries[1:]
    assert not left.exists()


def test_two_runs_at_once(folder: Path) -> None:
    """Each writes whole entries; both say the same."""
    expected = run(".", "--no-cache")
    command = [sys.executable, "-m", "fsdplint", "--output-format=json", "."]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert {one.communicate()[0] for one in both} == {expected}
    for path in (folder / FOLDER).glob("*.json"):
        assert json.loads(path.read_bytes())["result"]
    assert not list((folder / FOLDER).glob(".new-*"))


def test_fixes_come_from_the_files_as_they_are(folder: Path) -> None:
    run(".")
    result = CliRunner().invoke(main, ["check", "--fix", "--unsafe-fixes", "."])
    assert "model(torch.ones(1, 2))" in (folder / "train.py").read_text(), result.output
    assert "FSDP101" not in run(".")

"""Links that lead out of what was given: files behind them are checked, and never changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsdplint.cli.main import main

PROGRAM = """\
import torch
from torch.distributed.fsdp import fully_shard

model = torch.nn.Linear(8, 8)
fully_shard(model)
model.forward(torch.ones(1, 8)).sum().backward()
"""
FIXED = PROGRAM.replace("model.forward(", "model(")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs links")


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file, a link to a file beside it, and one to a folder beside it."""
    for name in ("given", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "given" / "pyproject.toml").touch()
    (tmp_path / "given" / "own.py").write_text(PROGRAM)
    (tmp_path / "single.py").write_text(PROGRAM)
    (tmp_path / "other" / "far.py").write_text(PROGRAM)
    (tmp_path / "given" / "link.py").symlink_to(tmp_path / "single.py")
    (tmp_path / "given" / "folder").symlink_to(tmp_path / "other")
    monkeypatch.chdir(tmp_path / "given")
    return tmp_path / "given"


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*arguments])
    return done.exit_code, done.output


def test_what_is_behind_a_link_is_checked_and_not_changed(given: Path) -> None:
    assert "Found 3 errors." in run(".")[1]
    code, output = run("--fix", ".")
    assert code == 1
    for path in ("folder/far.py", "link.py"):
        assert f"{path}: warning: a link leads out of the given paths to it" in output
    assert (given / "own.py").read_text() == FIXED
    for path in ("link.py", "folder/far.py"):
        assert (given / path).read_text() == PROGRAM
    assert (given / "link.py").is_symlink() and (given / "folder").is_symlink()
    assert "+++" not in run("--diff", ".")[1]


def test_what_is_named_is_changed(given: Path) -> None:
    code, _ = run("--fix", "own.py", "link.py", "folder")
    assert code == 0
    for path in ("own.py", "link.py", "folder/far.py"):
        assert (given / path).read_text() == FIXED
    assert (given / "link.py").is_symlink()


def test_a_link_within_the_folder_is_no_way_out(given: Path) -> None:
    (given / "again.py").symlink_to(given / "own.py")
    run("--fix", ".")
    assert (given / "again.py").is_symlink() and (given / "own.py").read_text() == FIXED


def test_comments_and_migrations_stay_within(given: Path) -> None:
    run("--add-noqa", ".")
    assert "noqa" in (given / "own.py").read_text()
    assert (given / "link.py").read_text() == PROGRAM
    old = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nm = FSDP(make())\n"
    for path in ("own.py", "link.py"):
        (given / path).write_text(old)
    run("migrate", "--fix", "--annotate", ".")
    assert (given / "own.py").read_text() != old
    assert (given / "link.py").read_text() == old

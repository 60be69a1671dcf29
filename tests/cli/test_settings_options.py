"""The options that users of other linters try first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command import BAD, run

BARE = ("--no-cache", "--output-format", "concise")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    for name in ("train.py", "old/train.py", "lib/train.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(BAD)
    (tmp_path / "pyproject.toml").write_text('[tool.fsdplint]\nexclude = ["old"]\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(*options: str) -> set[str]:
    lines = run("check", *BARE, *options).output.splitlines()
    return {line.split(":")[0] for line in lines if ": FSDP" in line}


EXCLUDED = {
    (): {"train.py", "lib/train.py"},
    ("--extend-exclude", "lib"): {"train.py"},
    ("--exclude", "lib"): {"train.py", "old/train.py"},
    ("--exclude", "lib,old"): {"train.py"},
    ("--exclude", "lib", "--extend-exclude", "/train.py"): {"old/train.py"},
    ("--isolated",): {"train.py", "lib/train.py", "old/train.py"},
}


@pytest.mark.parametrize("options", EXCLUDED)
def test_paths_that_are_left_out(project: Path, options: tuple[str, ...]) -> None:
    assert files(*options) == EXCLUDED[options]


def test_patterns_of_the_command_line_start_in_the_current_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "lib")
    assert files("..", "--exclude", "/train.py") == {"../train.py", "../old/train.py"}


def test_a_pattern_that_is_wrong(project: Path) -> None:
    result = run("check", "--exclude", "[z-a]")
    assert result.exit_code == 2 and "--exclude" in result.stderr


def test_a_settings_file_for_all_files(project: Path) -> None:
    other = project / "lib" / "strict.toml"
    other.write_text('exclude = ["/train.py"]\n')
    assert files("--config", "lib/strict.toml") == {"train.py", "old/train.py"}
    other.write_text('ignore = ["FSDP101"]\n')
    assert "FSDP101" not in run("check", *BARE, "--config", "lib/strict.toml").output
    other.write_text('select = ["FSDP601"]\nunknown = 1\n')
    result = run("check", "--config", "lib/strict.toml")
    assert result.exit_code == 2 and "unknown key 'unknown'; " in result.stderr
    assert run("check", "--config", "none.toml").exit_code == 2
    assert run("check", "--config", "lib/strict.toml", "--isolated").exit_code == 2


def test_a_pyproject_without_settings_is_no_settings_file(project: Path) -> None:
    empty = project / "lib" / "pyproject.toml"
    empty.write_text("[project]\n")
    result = run("check", "--config", "lib/pyproject.toml")
    assert result.exit_code == 2 and "has no settings for fsdplint" in result.stderr


def test_a_settings_file_of_its_own(project: Path) -> None:
    (project / "fsdplint.toml").write_text('exclude = ["lib"]\nextend-exclude = ["/train.py"]\n')
    assert files() == {"old/train.py"}


def test_rules_that_are_ignored_too(project: Path) -> None:
    output = run(
        "check", *BARE, "--select", "FSDP1", "--extend-ignore", "FSDP101", "train.py"
    ).output
    assert "FSDP101" not in output


def test_comments_are_ignored(project: Path) -> None:
    line = "model.forward(torch.randn(2, 4)).sum()"
    (project / "train.py").write_text(BAD.replace(line, f"{line}  # noqa: FSDP101"))
    assert "FSDP101" not in run("check", *BARE, "train.py").output
    assert "FSDP101" in run("check", *BARE, "train.py", "--ignore-noqa").output


def test_less_and_more_output(project: Path) -> None:
    quiet = run("check", *BARE, "train.py", "--quiet")
    assert quiet.output.splitlines() and all(": FSDP" in one for one in quiet.output.splitlines())
    verbose = run("check", *BARE, "train.py", "-v", "-j", "1").stderr
    assert f"Settings: {project / 'pyproject.toml'}" in verbose
    assert "Processes: at most 1" in verbose and "Files: 1" in verbose


def test_no_fix_wins_over_an_earlier_fix(project: Path) -> None:
    run("check", *BARE, "train.py", "--fix", "--no-fix")
    assert (project / "train.py").read_text() == BAD


def test_clean_removes_only_the_cache(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FSDPLINT_NO_CACHE", raising=False)
    os.utime("train.py", (0, 0))  # what has just been written is not cached
    run("check", "train.py")
    cache = project / ".fsdplint_cache"
    (cache / "notes.txt").write_text("mine")
    assert f"Removed {cache}" in run("clean").output
    assert [one.name for one in cache.iterdir()] == ["notes.txt"]
    assert run("clean").output == ""
    result = run("clean", "missing.py")
    assert result.exit_code == 2
    assert "missing.py: no such file or folder" in result.stderr


def test_the_diff_of_a_migration(project: Path) -> None:
    text = BAD.replace("import fully_shard", "import FullyShardedDataParallel as FSDP")
    text = text.replace("fully_shard(model)", "model = FSDP(model)").replace(
        "model.forward(", "model("
    )
    (project / "fsdp1.py").write_text(text)
    result = run("migrate", "--diff", "fsdp1.py", "--target-torch", "2.9")
    assert "1 program would be migrated whole." in result.stderr
    assert result.exit_code == 1 and "+fully_shard(model" in result.output.replace("+model = ", "+")
    assert (project / "fsdp1.py").read_text() == text
    assert run("migrate", "--diff", "--fix", "fsdp1.py").exit_code == 2

"""Finding files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsdplint.discovery.walk import discover
from fsdplint.source.folders import is_marked, project_root


def names(root: Path, *arguments: Path, **options: object) -> list[str]:
    files, problems = discover(arguments or [root], **options)  # type: ignore[arg-type]
    assert not problems
    return [file.path.relative_to(root).as_posix() for file in files]


def write(root: Path, *paths: str, text: str = "") -> None:
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_folders_are_searched_and_other_files_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "b.py", "a/z.py", "a/c.pyi", "a/notes.txt", "data.json")
    assert names(tmp_path) == ["b.py", "a/c.pyi", "a/z.py"]


def test_default_excludes(tmp_path: Path) -> None:
    write(
        tmp_path, "a.py", ".venv/x.py", "build/x.py", "lib/site-packages/x.py", "node_modules/x.py"
    )
    assert names(tmp_path) == ["a.py"]


def test_a_folder_of_distributed_code_is_searched(tmp_path: Path) -> None:
    """Python builds put archives into `dist`, and no source files."""
    write(tmp_path, "dist/train.py")
    assert names(tmp_path) == ["dist/train.py"]


def test_a_named_file_is_taken_whatever_it_is(tmp_path: Path) -> None:
    write(tmp_path, "build/x.py", "script")
    (tmp_path / ".gitignore").write_text("script\n")
    assert names(tmp_path, tmp_path / "build" / "x.py", tmp_path / "script") == [
        "build/x.py",
        "script",
    ]


def test_each_file_once(tmp_path: Path) -> None:
    write(tmp_path, "a/x.py")
    files, _ = discover([tmp_path, tmp_path / "a", tmp_path / "a" / "x.py"])
    assert [(file.path, file.named) for file in files] == [(tmp_path / "a" / "x.py", True)]


def test_gitignore_nested_and_negated(tmp_path: Path) -> None:
    write(
        tmp_path, "keep.py", "gen_a.py", "sub/gen_b.py", "sub/gen_c.py", "out/x.py", "sub/out/y.py"
    )
    (tmp_path / ".gitignore").write_text("# generated\ngen_*.py\n/out/\n")
    (tmp_path / "sub" / ".gitignore").write_text("!gen_b.py\n")
    assert names(tmp_path) == ["keep.py", "sub/gen_b.py", "sub/out/y.py"]


def test_what_is_no_pattern_in_gitignore_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "b.py", "y.py")
    (tmp_path / ".gitignore").write_text("a.py\n[z-a].py\n!\nb.p\\\nb.py\n")
    assert names(tmp_path) == ["y.py"]


def test_gitignore_above_the_argument_holds_within_the_repository(tmp_path: Path) -> None:
    write(tmp_path, "pkg/a.py", "pkg/local/b.py", "pkg/deep/er/c.py", "pkg/deep/er/d.py")
    (tmp_path / ".git" / "info").mkdir(parents=True)
    (tmp_path / ".git" / "info" / "exclude").write_text("d.py\n")
    (tmp_path / ".gitignore").write_text("local/\n")
    (tmp_path / "pkg" / "deep" / ".gitignore").write_text("c.py\n")
    assert names(tmp_path, tmp_path / "pkg") == ["pkg/a.py"]
    assert names(tmp_path, tmp_path / "pkg" / "deep" / "er") == []


def test_exclude_is_asked_for_files_and_folders(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "b.py", "c/d.py")
    wanted = names(tmp_path, excluded=lambda path, is_folder: path.name in ("b.py", "c"))
    assert wanted == ["a.py"]


def test_loops_of_links_end_and_real_names_win(tmp_path: Path) -> None:
    write(tmp_path, "real/x.py")
    (tmp_path / "real" / "loop").symlink_to(tmp_path)
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    (tmp_path / "self.py").symlink_to("self.py")
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    (tmp_path / "again.py").symlink_to("real/x.py")
    assert names(tmp_path) == ["real/x.py"]


def test_pipes_are_not_opened_in_a_search(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert names(tmp_path) == []


def test_missing_paths_are_problems(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "b.ipynb")
    (tmp_path / "self.py").symlink_to("self.py")
    arguments = [tmp_path / name for name in ("no.py", "b.ipynb", "self.py", "a.py")]
    files, problems = discover(arguments)
    assert [file.path.name for file in files] == ["b.ipynb", "a.py"]
    assert [(Path(p.path).name, p.message) for p in problems] == [
        ("no.py", "no such file or folder"),
        ("self.py", "a link that leads to itself"),
    ]
    assert all(p.hint for p in problems)


def test_a_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.py", "locked/b.py")
    real = os.scandir

    def scandir(path: Path) -> object:
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    files, problems = discover([tmp_path])
    assert [file.path.name for file in files] == ["a.py"]
    assert [(Path(p.path).name, p.message) for p in problems] == [("locked", "permission denied")]


def test_project_root(tmp_path: Path) -> None:
    write(tmp_path, "repo/pkg/sub/a.py", "repo/setup.py")
    assert project_root(tmp_path / "repo" / "pkg" / "sub" / "a.py") == tmp_path / "repo"


def test_an_archive_of_a_repository_has_a_root(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    (root / "scripts").mkdir(parents=True)
    file = root / "scripts" / "train.py"
    assert project_root(file) == root / "scripts" and not is_marked(root)
    (root / "README.md").touch()
    assert project_root(file) == root and is_marked(root)
    (root / "scripts" / "requirements.txt").touch()
    assert project_root(file) == root / "scripts"
    (root / "LICENSE").touch()
    assert project_root(file) == root and is_marked(root)
    (root / "scripts" / "setup.py").touch()
    assert project_root(file) == root / "scripts"


def test_the_folder_of_the_user_is_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    (tmp_path / ".gitignore").touch()
    assert project_root(tmp_path / "work" / "a.py") == tmp_path / "work"
    assert not is_marked(tmp_path)

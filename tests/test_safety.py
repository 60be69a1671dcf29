"""What checking and fixing must not do: run code of the user, read what is too large, lose a file."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsdplint.cli.main import main

ROOT = Path(__file__).parent.parent
BAD = """\
import torch
from torch.distributed.fsdp import fully_shard

model = torch.nn.Linear(8, 8)
fully_shard(model)
model.forward(torch.ones(1, 8)).sum().backward()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["check", "--output-format", "concise", *arguments])
    return done.exit_code, done.output


# No code of the user's -----------------------------------------------------------------------------

WATCHED = """
import os, sys
folder = os.path.realpath(os.getcwd())
forbidden = []
def inside(path):
    return isinstance(path, str) and path[:1] != "<" and os.path.realpath(path).startswith(folder)
def watch(event, args):
    if event == "exec":
        if inside(args[0].co_filename):
            forbidden.append((event, args[0].co_filename))
    elif event == "import":
        if args[0].split(".")[0] in ("helper_of_mine", "train", "sitecustomize_of_mine") or inside(args[1]):
            forbidden.append((event, args[0]))
    elif event == "open":
        path, mode, flags = args
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and isinstance(path, str) and path != os.devnull:
            forbidden.append((event, path))
    elif event.startswith(("subprocess.", "socket.", "os.system", "os.exec", "os.posix_spawn", "os.fork",
                           "urllib.", "ftplib.", "smtplib.", "os.remove", "os.rename", "os.rmdir",
                           "os.mkdir", "os.link", "os.symlink", "os.chmod", "shutil.", "ctypes.dlopen")):
        forbidden.append((event, str(args)[:200]))
sys.path.append(folder)  # even where it could be imported
sys.addaudithook(watch)
sys.argv = ["fsdplint", "check", "--no-cache", *sys.argv[1:]]
from fsdplint.cli.main import main
try:
    main()
except SystemExit as end:
    print("END", end.code, forbidden)
"""


@pytest.mark.parametrize("options", [(), ("--diff", "--unsafe-fixes")])
def test_checking_runs_and_imports_nothing_of_the_users(
    folder: Path, options: tuple[str, ...]
) -> None:
    """Watched by an audit hook, which sees whatever is executed, imported, opened or started."""
    code = 'open("was_run", "w").write("x")\n'
    (folder / "helper_of_mine.py").write_text(code + "from torch.distributed.fsdp import *\n")
    (folder / "conftest.py").write_text(code)
    (folder / "setup.py").write_text(code + "# fsdp\n")
    (folder / "sitecustomize_of_mine.py").write_text(code)
    (folder / "train.py").write_text(code + "import helper_of_mine\n" + BAD)
    before = sorted(path.name for path in folder.iterdir())
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *options, "."],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "END 1 []", done.stdout + done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_module_imports_nothing_from_the_current_folder(folder: Path) -> None:
    """`python -m` puts that first: neither modules of the names that are imported, nor plug-ins."""
    code = 'open("was_run", "w").write("x")\n'
    for name in ("click", "libcst", "pathspec", "tomllib", "json", "evil"):
        (folder / f"{name}.py").write_text(code)
    metadata = folder / "evil-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[fsdplint.rules]\nevil = evil\n")
    (folder / "train.py").write_text(BAD)
    done = subprocess.run(
        [sys.executable, "-m", "fsdplint", "--no-cache", "--output-format=concise", "train.py"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 1, done.stderr
    assert "FSDP101" in done.stdout and "FSDP902" not in done.stdout
    assert not (folder / "was_run").exists()


# What is too large ---------------------------------------------------------------------------------


def test_the_largest_file_is_a_setting(folder: Path) -> None:
    (folder / "train.py").write_text(BAD)
    assert "FSDP101" in run("train.py")[1]
    settings = "[tool.fsdplint]\nmax-file-size = 100\n"
    (folder / "pyproject.toml").write_text(settings)
    code, output = run("train.py")
    assert code == 2 and "train.py: FSDP901 too large to check" in output
    assert "max-file-size" in output
    (folder / "pyproject.toml").write_text(settings.replace("100", str(len(BAD))))
    assert "FSDP101" in run("train.py")[1]
    shown = CliRunner().invoke(main, ["check", "--show-settings", "train.py"]).output
    assert f"max-file-size = {len(BAD)}" in shown.splitlines()


def test_of_a_notebook_the_code_counts(folder: Path) -> None:
    picture = {"output_type": "display_data", "data": {"image/png": "A" * 5000}, "metadata": {}}
    cell = {"cell_type": "code", "metadata": {}, "source": BAD, "outputs": [picture]}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "train.ipynb").write_text(json.dumps(notebook))
    for size, found in ((len(BAD), "FSDP101"), (len(BAD) - 1, "FSDP901 too large to check")):
        (folder / "pyproject.toml").write_text(f"[tool.fsdplint]\nmax-file-size = {size}\n")
        assert found in run("train.ipynb")[1]


@pytest.mark.parametrize("value", ["0", "-1", "true", '"2MB"', "1.5"])
def test_a_size_is_a_number_of_bytes(folder: Path, value: str) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.fsdplint]\nmax-file-size = {value}\n")
    (folder / "train.py").write_text(BAD)
    code, output = run("train.py")
    assert code == 2 and "max-file-size: must be a number of bytes" in output


# Writing -------------------------------------------------------------------------------------------


def fixing(*arguments: str, limit: int | None = None) -> subprocess.Popen[str]:
    """`fsdplint --fix` in a process of its own, which may write files of so many bytes."""

    def bounded() -> None:
        import signal

        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, "-m", "fsdplint", "--no-cache", "--fix", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=bounded,
    )


def test_where_nothing_more_can_be_written_nothing_is_lost(folder: Path) -> None:
    """A real limit of the system, and not one that is played."""
    for name in ("a.py", "b.py"):
        (folder / name).write_text(BAD)
    process = fixing(".", limit=64)
    output, _ = process.communicate()
    assert process.returncode == 2
    assert "cannot be written (File too large); it is unchanged" in output
    assert "Traceback" not in output
    assert [(folder / name).read_text() for name in ("a.py", "b.py")] == [BAD, BAD]
    assert sorted(path.name for path in folder.iterdir()) == ["a.py", "b.py", "pyproject.toml"]


def test_two_runs_at_once_lose_nothing(folder: Path) -> None:
    names = [f"train{number}.py" for number in range(6)]
    for name in names:
        (folder / name).write_text(BAD)
    processes = [fixing(".") for _ in range(2)]
    ends = [(process.communicate()[0], process.returncode) for process in processes]
    for output, code in ends:
        assert "Traceback" not in output
        # One may come too late, and then it says so.
        assert code == 0 or "changed by someone else in the meantime" in output, output
    fixed = BAD.replace("model.forward(", "model(")
    assert [(folder / name).read_text() for name in names] == [fixed] * len(names)
    assert sorted(path.name for path in folder.iterdir()) == ["pyproject.toml", *names]

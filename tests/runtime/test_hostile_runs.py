"""`fsdplint prove` and `fsdplint run` on what is no program, and where nothing can be written.

Each is one line on standard error and exit code 2, without a traceback and without a rank.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdplint.cli.main import main

HEAD = "from torch.distributed.fsdp import fully_shard\n"
PROGRAM = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
fully_shard(model)
for step in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
FULL = "/dev/full"
PATIENCE = 240  # seconds: so long that only what never ends meets it


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "clean.py").write_text("x = 1\n")
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


@contextlib.contextmanager
def no_hang() -> Iterator[None]:
    """Ends the test where something waits without an end."""

    def stop(number: int, frame: object) -> None:
        raise AssertionError("this hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(*arguments: str | Path) -> Result:
    with no_hang():
        done = CliRunner().invoke(main, [str(one) for one in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    assert "Traceback" not in done.output and "internal error" not in done.output
    return done


# What is no program -------------------------------------------------------------------------------


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def own_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)  # a whole path may be longer than a socket's name can be


def subfolder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(50_000_000_000)


def unreadable(path: Path) -> None:
    path.write_text(HEAD)
    path.chmod(0)


def holding(data: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(data)

    return make


NO_PROGRAMS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "missing": ("a.py", Path.exists, "a.py: no such file"),
    "pipe": ("a.py", pipe, "a.py: a named pipe, not a regular file"),
    "socket": ("a.py", own_socket, "a.py: a socket, not a regular file"),
    "device": ("a.py", device, "a.py: a device, not a regular file"),
    "folder": ("a.py", subfolder, "a.py: a folder, not a regular file"),
    "loop": ("a.py", loop, "a.py: a link that leads to itself"),
    "sparse": ("a.py", sparse, "a.py: too large to check (50000.0 MB"),
    "unreadable": ("a.py", unreadable, "a.py: permission denied"),
    "null": ("a.py", holding(HEAD.encode() + b"x = 1\0\n"), "null bytes"),
    "deep": ("a.py", holding(HEAD.encode() + b"(" * 50_000), "a.py:2: syntax error: too many"),
    "utf-16": ("a.py", holding(HEAD.encode("utf-16")), "a.py:1: not UTF-8: byte 0xff"),
    "latin-1": ("a.py", holding(HEAD.encode() + b"# \xe4\n"), "a.py:2: not UTF-8: byte 0xe4"),
    "surrogate": ("a.py", holding(HEAD.encode() + b"'\xed\xa0\x80'\n"), "a.py:2: not UTF-8"),
    "syntax": ("a.py", holding(HEAD.encode() + b"(\n"), "a.py:2: syntax error: '(' was never"),
    "return": ("a.py", holding(HEAD.encode() + b"return\n"), "a.py:2: syntax error: 'return'"),
    "encoding": ("a.py", holding(b"# coding: none-such\n"), "a.py:1: unknown encoding"),
    "name": (os.fsdecode(b"\xff.py"), holding(HEAD.encode() + b"(\n"), "\\udcff.py:2: syntax"),
    "notebook": ("a.ipynb", holding(b"{}"), "a.ipynb: torchrun cannot start a notebook"),
    "yaml": (
        "a.yaml",
        holding(b"distributed_type: FSDP\n"),
        "torchrun cannot start a configuration",
    ),
    "long": ("a" * 5000, lambda path: None, "File name too long"),
    "beyond": (
        "clean.py/a.py",
        lambda path: None,
        "clean.py/a.py: cannot be read: Not a directory",
    ),
}


@pytest.mark.parametrize("kind", NO_PROGRAMS)
@pytest.mark.parametrize("command", [["prove"], ["run"], ["prove", "clean.py", "--against"]])
def test_what_is_no_program_is_refused_in_one_line(
    folder: Path, command: list[str], kind: str
) -> None:
    if kind == "unreadable" and os.geteuid() == 0:
        pytest.skip("everything is readable")
    name, make, words = NO_PROGRAMS[kind]
    make(folder / name)
    done = run(*command, name)
    assert done.exit_code == 2 and done.stdout == ""
    assert words in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_name_in_surrogates_is_a_name(folder: Path) -> None:
    name = os.fsdecode(b"\xff.py")
    (folder / name).write_text(HEAD)
    assert run("prove", name).stdout == "\nNothing to prove: there are no findings.\n"


@pytest.mark.parametrize("value", ["'", '"', "a\\"])
def test_arguments_that_no_shell_splits(value: str) -> None:
    done = run("prove", "clean.py", "--resume", value)
    assert done.exit_code == 2 and f"--resume {value}: no" in done.stderr


# Where nothing can be written ---------------------------------------------------------------------


def used(path: Path) -> None:
    path.write_text("a file of the user's")


NO_TARGETS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "folder": ("out", subfolder, "is a directory"),
    "full": (FULL, lambda path: None, "No space left on device"),
    "pipe": ("out", pipe, "no program reads this named pipe"),
    "socket": ("out", own_socket, "No such device or address"),
    "user": ("out", used, "use --force to overwrite it"),
    "loop": ("out", loop, "Too many levels of symbolic links"),
    "below a file": ("clean.py/out", lambda path: None, "Not a directory"),
    "below a pipe": ("out/a", lambda path: pipe(path.parent), "Not a directory"),
}
TO_FILES = {
    "json": ["prove", "clean.py", "--json"],
    "html": ["prove", "clean.py", "--html"],
    "markdown": ["prove", "clean.py", "--markdown"],
    "check": ["check", "clean.py", "-o"],
}


@pytest.mark.parametrize("kind", NO_TARGETS)
@pytest.mark.parametrize("option", TO_FILES)
def test_a_report_that_cannot_be_written(folder: Path, option: str, kind: str) -> None:
    name, make, words = NO_TARGETS[kind]
    if name == FULL and not os.path.exists(FULL):
        pytest.skip(f"no {FULL}")
    make(folder / name)
    done = run(*TO_FILES[option], name)
    assert done.exit_code == 2 and done.stderr.count(words) == 1, done.output
    assert "Usage:" in done.stderr or done.stderr.count("\n") == 1
    assert kind != "user" or (folder / "out").read_text() == "a file of the user's"


def test_a_named_pipe_that_is_read_gets_the_report(folder: Path) -> None:
    os.mkfifo(folder / "out")
    reader = os.open(folder / "out", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run("prove", "clean.py", "--markdown", "out").exit_code == 0
        assert os.read(reader, 1000).startswith(b"## Proof of `clean.py`")
    finally:
        os.close(reader)


@pytest.mark.parametrize("command", ["prove", "run"])
@pytest.mark.parametrize("kind", ["full", "pipe", "user", "loop", "below a file"])
def test_a_folder_to_keep_that_cannot_be_made(folder: Path, command: str, kind: str) -> None:
    name, make, _ = NO_TARGETS[kind]
    make(folder / name)
    done = run(command, "train.py", "--keep", name)
    assert done.exit_code == 2 and done.stdout == ""
    assert name in done.stderr and ("Usage:" in done.stderr or done.stderr.count("\n") == 1)
    assert "[Errno" not in done.stderr


# What a run that came to its end prints and writes ------------------------------------------------


def print_to(output: int, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The exit code of a command whose standard output is a descriptor, and its errors."""
    with tempfile.TemporaryFile("w+") as errors:
        with monkeypatch.context() as patch, no_hang(), pytest.raises(SystemExit) as end:
            for name, descriptor in (("stdout", output), ("stderr", errors.fileno())):
                patch.setattr(sys, name, open(os.dup(descriptor), "w"))  # noqa: SIM115
            main(arguments)
        errors.seek(0)
        assert isinstance(end.value.code, int)
        return end.value.code, errors.read()


PRINTING = {"run": ["run", "train.py"], "prove": ["prove", "train.py", "--json", "proof.json"]}


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("command", PRINTING)
def test_nobody_reads_or_there_is_no_room(
    folder: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_end, closed = os.pipe()
    os.close(read_end)
    full = os.open(FULL, os.O_WRONLY)
    try:
        for output, expected in ((closed, 0), (full, 2)):
            code, errors = print_to(output, PRINTING[command], monkeypatch)
            assert code == expected, errors
            assert "Traceback" not in errors and "roken pipe" not in errors
            assert errors.count("No space left on device") == (output == full)
            if command == "prove":  # it is written before anything is printed
                (folder / "proof.json").unlink()
    finally:
        os.close(closed)
        os.close(full)
    mine = f"fsdplint-{command}-{os.getpid()}-*"
    assert not list(Path(tempfile.gettempdir()).glob(mine)), "a temporary folder is left behind"


@pytest.mark.usefixtures("forked")
def test_a_report_of_a_run_that_cannot_be_written(folder: Path) -> None:
    os.mkfifo(folder / "out")
    for name, words in (("out", "no program reads this"), (FULL, "No space left on device")):
        done = run("run", "train.py", "-o", name)
        assert done.exit_code == 2 and done.stderr.count(words) == 1, done.output

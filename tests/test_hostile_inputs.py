"""Inputs that were made to break the tool: each is a problem of its file, and the run goes on."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import fsdplint
from fsdplint.cli.main import main
from fsdplint.config.target_torch import of_project
from fsdplint.source import reading

HEAD = "from torch.distributed.fsdp import fully_shard\n"
GOOD = """\
import torch
from torch.distributed.fsdp import fully_shard

model = torch.nn.Linear(8, 8)
fully_shard(model)
model.forward(torch.ones(1, 8)).sum().backward()
"""
COMMANDS = {
    "check": ["check", "--no-cache", "--output-format", "concise"],
    "fix": ["check", "--no-cache", "--fix"],
    "diff": ["check", "--no-cache", "--diff"],
    "migrate": ["migrate"],
    "baseline": ["baseline", "-o", "known.json"],
}


def indented(line: str, depth: int) -> str:
    return "".join(" " * level + line for level in range(depth)) + " " * depth + "pass\n"


def notebook(code: str) -> str:
    cell = {"cell_type": "code", "metadata": {}, "source": code, "outputs": []}
    whole = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole)


def nested(depth: int) -> dict[str, str]:
    """Files by their names, in which something is nested."""
    blocks = min(depth, 600)  # the text of nested blocks grows with the square of their depth
    accelerate = "distributed_type: FSDP\nx: "
    return {
        "if.py": HEAD + indented("if x:\n", blocks),
        "for.py": HEAD + indented("for x in y:\n", blocks),
        "def.py": HEAD + indented("def f():\n", blocks),
        "brackets.py": HEAD + "x = " + "(" * depth + ")" * depth,
        "calls.py": HEAD + "x = " + "f(" * depth + ")" * depth,
        "attributes.py": HEAD + "x = a" + ".b" * depth,
        "operators.py": HEAD + "x = 1" + " + 1" * depth,
        "elif.py": HEAD + "if 1:\n pass\n" + "elif 1:\n pass\n" * depth,
        "fields.py": HEAD + "x = f'{x" + ":{x" * depth + "}" * depth + "}'\n",
        "if.ipynb": notebook(HEAD + indented("if x:\n", blocks)),
        "json.ipynb": '{"cells": [], "fsdp": ' + "[" * depth + "]" * depth + "}",
        "open.ipynb": '{"cells": ' + "[" * depth + '"fsdp"',
        "flow.yaml": accelerate + "[" * depth + "]" * depth,
        "open.yaml": accelerate + "[" * depth,
        "deep.json": '{"distributed_type": "FSDP", "x": ' + "[" * depth + "]" * depth + "}",
    }


BROKEN = {
    "surrogate.ipynb": notebook(HEAD + "x = '@'\n").replace("@", "\\ud800"),
    "broken.yaml": "distributed_type: FSDP\nfsdp_config: [1\n",
    "broken.json": '{"distributed_type": "FSDP",}',
}
ALWAYS_REFUSED = {*BROKEN, "if.py", "for.py", "def.py", "brackets.py", "calls.py", "fields.py"}
TABLE = {
    **{f"500 {name}": (name, text) for name, text in nested(500).items()},
    **{f"50000 {name}": (name, text) for name, text in nested(50_000).items()},
    **{name: (name, text) for name, text in BROKEN.items()},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "good.py").write_text(GOOD)
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    assert "Traceback" not in done.output and "internal error" not in done.output
    return done.exit_code, done.output


@pytest.mark.parametrize(("name", "text"), TABLE.values(), ids=TABLE.keys())
def test_a_file_that_cannot_be_read_is_its_own_problem(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    code, output = run(*COMMANDS["check"], ".")
    assert code in (1, 2)
    assert "good.py:6" in output  # the other file is checked
    if code == 2 or name in ALWAYS_REFUSED:
        assert code == 2 and f"{name}:" in output and "FSDP901" in output, output


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "check"])
@pytest.mark.parametrize("name", ["if.py", "fields.py", "surrogate.ipynb", "broken.yaml"])
def test_every_command_goes_on(folder: Path, command: str, name: str) -> None:
    (folder / name).write_text({**nested(500), **BROKEN}[name])
    code, output = run(*COMMANDS[command], ".")
    assert code == 2 and name in output
    if command == "fix":
        assert "model.forward" not in (folder / "good.py").read_text()
    if command == "diff":
        assert "-model.forward" in output


def test_the_python_interface_goes_on(folder: Path) -> None:
    (folder / "if.py").write_text(nested(500)["if.py"])
    for result in (fsdplint.check("."), fsdplint.fix(".")):
        assert [Path(one.path).name for one in result.problems] == ["if.py"]
    assert [one.code for one in fsdplint.check(".").findings] == ["FSDP101"]
    half = fsdplint.check("good.py", texts={"good.py": GOOD + "x = '\ud800'\n"})
    assert "surrogate" in half.problems[0].message


# What is no regular file ---------------------------------------------------------------------------


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def own_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)  # a whole path may be longer than a socket's name can be


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(50_000_000_000)


KINDS = {
    pipe: "a named pipe",
    device: "a device",
    own_socket: "a socket",
    sparse: "too large to be",
}


@pytest.mark.parametrize(("make", "words"), KINDS.items(), ids=lambda one: str(one)[:9])
@pytest.mark.parametrize("name", ["a.py", "a.ipynb", "a.yaml", "a.json", ".gitignore"])
def test_what_is_no_regular_file_is_refused_by_name(
    folder: Path, make: Callable[[Path], None], words: str, name: str
) -> None:
    make(folder / name)
    named = [] if name == ".gitignore" else [name]
    code, output = run(*COMMANDS["check"], ".", *named)
    assert code == 2 and words in output.replace("to check", "to be") and name in output
    assert "good.py:6" in output


@pytest.mark.parametrize("make", KINDS, ids=lambda one: one.__name__)
def test_settings_requirements_and_baselines_are_refused_too(
    folder: Path, make: Callable[[Path], None]
) -> None:
    make(folder / "requirements.txt")
    code, output = run(*COMMANDS["check"], ".")
    assert code == 2 and "requirements.txt: FSDP901" in output and "good.py:6" in output
    (folder / "requirements.txt").unlink()
    make(folder / "known.json")
    code, output = run(*COMMANDS["check"], "--baseline", "known.json", ".")
    assert code == 2 and "error: " in output and "known.json" in output
    (folder / "known.json").unlink()
    (folder / "pyproject.toml").unlink()
    make(folder / "pyproject.toml")
    code, output = run(*COMMANDS["check"], ".")
    assert code == 2 and "pyproject.toml: cannot be read" in output


def test_a_baseline_of_a_device_is_refused(folder: Path) -> None:
    code, output = run("baseline", "/dev/zero")
    assert code == 2 and "/dev/zero: a device" in output.replace(" FSDP901", "")


def test_no_more_is_read_than_the_bound(tmp_path: Path) -> None:
    """Of a file whose size the system does not state, either."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("no /proc")
    assert b"Pid" in reading.read(status)
    with pytest.raises(reading.TooLarge) as caught:
        reading.read(status, 10)
    assert caught.value.size == 11


def test_a_large_file_is_a_problem_only_where_it_matters(folder: Path) -> None:
    (folder / "data.py").write_text("x = 1\n" * 400_000)
    assert run(*COMMANDS["check"], ".")[0] == 1
    (folder / "data.py").write_text("x = 1\n" * 400_000 + HEAD)
    code, output = run(*COMMANDS["check"], ".")
    assert code == 2 and "data.py: FSDP901 too large" in output and "good.py:6" in output


# Settings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("[tool.fsdplint]\nignore = ['ALL']\n".encode("utf-16"), "not UTF-8"),
        ("# \xe4\n[tool.fsdplint]\n".encode("latin-1"), "not UTF-8"),
        (b"[tool.fsdplint]\nselect = " + b"[" * 50_000 + b"]" * 50_000, "nested too deeply"),
    ],
)
def test_settings_that_cannot_be_read_are_not_ignored(
    folder: Path, data: bytes, words: str
) -> None:
    (folder / "pyproject.toml").write_bytes(data)
    code, output = run(*COMMANDS["check"], ".")
    assert code == 2 and "pyproject.toml" in output and words in output


def test_requirements_in_utf_16_are_read(folder: Path) -> None:
    (folder / "requirements.txt").write_bytes("torch==2.5.1\r\n".encode("utf-16"))
    target = of_project(folder, folder)
    assert target is not None and target.oldest == "2.5"


def test_a_configuration_that_was_named_has_to_be_one(folder: Path) -> None:
    (folder / "a.yaml").write_text("x: [1\n")
    assert run(*COMMANDS["check"], ".")[0] == 1  # found in a folder, it may be anything
    code, output = run(*COMMANDS["check"], "a.yaml")
    assert code == 2 and "a.yaml:" in output and "not YAML" in output


# Full devices and closed pipes ---------------------------------------------------------------------

PRINTING = {
    "check": ["check", "--no-cache", "good.py"],
    "diff": ["--diff", "--no-cache", "good.py"],
    "migrate": ["migrate", "good.py"],
    "rule": ["rule", "--all"],
    "version": ["--version"],
}


def process(arguments: list[str], output: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fsdplint", *arguments],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("arguments", PRINTING.values(), ids=PRINTING.keys())
def test_a_full_device_is_one_line(folder: Path, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = process(arguments, full.fileno())
    assert done.returncode == 2
    assert done.stderr.count("No space left on device") == 1 and "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", PRINTING.values(), ids=PRINTING.keys())
def test_a_closed_pipe_ends_quietly(folder: Path, arguments: list[str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = process(arguments, write_end)
    finally:
        os.close(write_end)
    assert done.returncode == 0
    assert "roken pipe" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_report_onto_a_full_device(folder: Path) -> None:
    code, output = run(*COMMANDS["check"], "-o", "/dev/full", ".")
    assert code == 2 and "cannot be written" in output
    assert run("check", "--cache-dir", "/dev/full", ".")[0] == 1

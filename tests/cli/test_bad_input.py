"""Files that cannot be read, checked or written, and interrupted checks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import BAD, FIXED, run

MENTION = "import torch.distributed.fsdp\n"


def nested() -> bytes:
    return b"x = " + b"(" * 2000 + b"1" + b")" * 2000 + b"\n"


@pytest.mark.parametrize("mention", [MENTION, ""], ids=["about FSDP", "not about FSDP"])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"def f(:\n", "2: FSDP901 syntax error: invalid syntax"),
        (b"x = '\xe9'\n", "2: FSDP901 not UTF-8: byte 0xe9 cannot be decoded"),
        (nested(), "2: FSDP901 nested too deeply to be read"),
        (b"x = 1\0\n", "FSDP901 syntax error: "),
    ],
    ids=["syntax", "encoding", "nested", "null"],
)
def test_what_cannot_be_read_is_named_and_the_others_checked(
    folder: Path, data: bytes, message: str, mention: str
) -> None:
    head = mention or "# nothing\n"
    (folder / "broken.py").write_bytes(head.encode() + data)
    (folder / "train.py").write_text(BAD)
    result = run("--output-format", "concise", "broken.py", "train.py")
    assert result.exit_code == 2
    first, second = result.output.splitlines()[:2]
    assert first.startswith("broken.py:") and message in first
    assert first.endswith(")")  # what to do
    assert second.startswith("train.py:10:8: FSDP101")
    assert run("--fix", "broken.py", "train.py").exit_code == 2
    assert (folder / "train.py").read_text() == FIXED
    in_json = json.loads(run("--output-format", "json", "broken.py").output)
    assert [(one["code"], one["filename"]) for one in in_json] == [("FSDP901", "broken.py")]


HELPER = "def build(:\n    pass\n"
PROGRAM = "from helper import build\nfrom torch.distributed.fsdp import fully_shard\nfully_shard(build())\n"


@pytest.mark.parametrize("path", ["train.py", "."])
def test_a_program_imports_what_is_no_python(folder: Path, path: str) -> None:
    (folder / "helper.py").write_text(HELPER)
    (folder / "train.py").write_text(PROGRAM)
    for _ in range(2):  # the second time from the cache
        result = run("--output-format", "concise", path)
        assert result.exit_code == 2
        assert result.output.splitlines()[0] == (
            "helper.py:1: FSDP901 syntax error: invalid syntax (train.py imports this file)"
        )


def test_an_import_that_may_fail_is_no_problem(folder: Path) -> None:
    (folder / "helper.py").write_text(HELPER)
    text = PROGRAM.replace("from helper import build\n", "")
    guarded = "try:\n    from helper import build\nexcept Exception:\n    build = None\n"
    (folder / "train.py").write_text(guarded + text)
    assert run("train.py").exit_code == 0


def test_declared_encodings_are_read(folder: Path) -> None:
    text = "# coding: latin-1\n" + BAD.replace("keep", "für")
    (folder / "train.py").write_bytes(text.encode("latin-1"))
    result = run("--output-format", "concise", "train.py")
    assert result.output.startswith("train.py:11:8: FSDP101")
    (folder / "train.py").write_text("# coding: klingon\n" + BAD)
    result = run("train.py")
    assert result.exit_code == 2
    assert result.output.startswith("train.py:1: FSDP901 unknown encoding: klingon")


def test_missing_paths_and_loops(folder: Path) -> None:
    (folder / "train.py").write_text(BAD)
    (folder / "loop").symlink_to(folder)
    (folder / "me.py").symlink_to("me.py")
    result = run("--output-format", "concise", "gone.py", "me.py", ".", "no/where")
    assert result.exit_code == 2
    assert [line.split(" ")[0] for line in result.output.splitlines()[:4]] == [
        "gone.py:",
        "me.py:",
        f"{Path('no/where')}:",
        "train.py:10:8:",
    ]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="everything is readable")
def test_unreadable_file(folder: Path) -> None:
    file = folder / "train.py"
    file.write_text(BAD)
    file.chmod(0)
    result = run("train.py")
    assert result.exit_code == 2
    assert "permission denied" in result.output


def test_empty_files(folder: Path) -> None:
    for name, data in {
        "empty.py": b"",
        "mark.py": b"\xef\xbb\xbf",
        "blank.py": b"\r\n\r\n",
    }.items():
        (folder / name).write_bytes(data)
    assert run(".").exit_code == run("empty.py", "mark.py", "blank.py").exit_code == 0
    assert run("--fix", "empty.py").exit_code == 0
    assert (folder / "empty.py").read_bytes() == b""


def test_large_generated_files(folder: Path) -> None:
    (folder / "generated.py").write_text("x = [1, 2, 3, 4]\n" * 300_000)
    assert run(".").exit_code == run("generated.py").exit_code == 0
    (folder / "generated.py").write_text("x = [1, 2, 3, 4]\n" * 300_000 + MENTION)
    (folder / "train.py").write_text(BAD)
    result = run("--output-format", "concise", ".")
    assert result.exit_code == 2
    assert result.output.startswith("generated.py: FSDP901 too large to check (5.1 MB")
    assert "train.py:10:8: FSDP101" in result.output


def test_a_defect_is_named_with_its_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsdplint.engine import examine

    (folder / "train.py").write_text(BAD)
    (folder / "odd.py").write_text(MENTION)
    real = examine.check

    def check(program: object, *arguments: object) -> object:
        if "odd.py" in program.sources:  # type: ignore[attr-defined]
            raise AssertionError("a hole")
        return real(program, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(examine, "check", check)
    result = run("--output-format", "concise", "odd.py", "train.py")
    assert result.exit_code == 2
    first, second = result.output.splitlines()[:2]
    assert first.startswith("odd.py: FSDP901 internal error: AssertionError: a hole")
    assert second.startswith("train.py:10:8: FSDP101")


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_an_interrupted_run_ends(folder: Path) -> None:
    (folder / "train.py").write_text(BAD)
    program = (
        "import os, signal, sys, time\n"
        "from fsdplint.engine import examine\n"
        "from fsdplint.cli.main import main\n"
        # What a shell starts in the background ignores the signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def check(*_):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(300)\n"
        "examine.check = check\n"
        "main(['train.py'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stderr) == (2, "error: interrupted\n")


def test_a_file_that_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsdplint.edits import write

    (folder / "train.py").write_text(BAD)

    def refuse(files: object) -> None:
        raise write.WriteError(None, "train.py is write-protected; it is unchanged")

    monkeypatch.setattr(write, "write", refuse)
    result = run("--fix", "train.py")
    assert result.exit_code == 2
    assert result.stderr == "error: train.py is write-protected; it is unchanged\n"

"""The end of the process of a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """\
import atexit
from fsdplint.cli.process import start

class Kept:
    def __del__(self):
        print("released")

kept = Kept()
atexit.register(print, "the end")
start(args=[%r])
"""


def ended(argument: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM % argument]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_exit_functions_run_and_nothing_is_released() -> None:
    process = ended("--version")
    assert process.returncode == 0
    assert process.stdout.startswith("fsdplint ")
    assert process.stdout.endswith("\nthe end\n")


def test_a_wrong_option_keeps_its_exit_code() -> None:
    process = ended("--no-such-option")
    assert process.returncode == 2
    assert "No such option" in process.stderr


def test_a_text_instead_of_an_exit_code_is_shown() -> None:
    program = (
        "import fsdplint.cli.process as process\n"
        "def main(**_): raise SystemExit('a message')\n"
        "process.main = main\n"
        "process.start()\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert shown.returncode == 1
    assert shown.stderr == "a message\n"

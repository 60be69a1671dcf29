"""What may be run: a program that Python itself reads. Anything else is refused beforehand."""

from __future__ import annotations

from pathlib import Path

from fsdplint.source import config_files
from fsdplint.source.files import NOTEBOOK, Unreadable, read_program


def refusal(path: Path) -> str:
    """Why a script cannot be run, in one line; empty where Python reads it."""
    if path.suffix == NOTEBOOK and path.is_file():
        return f"{path}: torchrun starts no notebooks; give a script"
    if config_files.is_config(path) and path.is_file():
        return f"{path}: torchrun starts no configurations; give a script"
    try:
        read_program(path)
    except Unreadable as error:
        problem = error.problem
        place = f"{path}:{problem.line}" if problem.line else str(path)
        return f"{place}: {problem.message}"
    return ""

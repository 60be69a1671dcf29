"""Checks that a script can be run: Python itself must be able to read it."""

from __future__ import annotations

from pathlib import Path

from fsdplint.source import config_files
from fsdplint.source.files import NOTEBOOK, Unreadable, read_program


def refusal(path: Path) -> str:
    """Why a script cannot be run, in one line; empty if it can."""
    if path.suffix == NOTEBOOK and path.is_file():
        return f"{path}: torchrun cannot start a notebook; give a script"
    if config_files.is_config(path) and path.is_file():
        return f"{path}: torchrun cannot start a configuration; give a script"
    try:
        read_program(path)
    except Unreadable as error:
        problem = error.problem
        place = f"{path}:{problem.line}" if problem.line else str(path)
        return f"{place}: {problem.message}"
    return ""

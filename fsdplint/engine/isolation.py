"""Jobs on a group of files that a defect of fsdplint, or of a plug-in, does not end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from fsdplint.engine.examine import check_alone
from fsdplint.engine.session import Session
from fsdplint.registry.rule import Rule
from fsdplint.source.debug import VARIABLE, debugging
from fsdplint.source.files import Problem
from fsdplint.source.nesting import deep_stack

T = TypeVar("T")


def run_isolated(
    session: Session,
    rules: Sequence[type[Rule]],
    paths: Sequence[Path],
    job: Callable[[Sequence[Path], Sequence[Problem]], T],
) -> T:
    """Run a job on a deep stack. Files on which it raises become problems of the session.

    job: gets the files on which it does not raise, and the problems of the others.
    """

    def run() -> T:
        try:
            return job(paths, ())
        except Exception:
            if debugging():
                raise
            sound, problems = _without_defects(session, rules, paths)
            session.add_problems(problems)
        try:
            return job(sound, problems)
        except Exception as error:  # only all files together raise
            problems += [_defect(path, error) for path in sound]
            session.add_problems(problems)
            return job((), problems)

    return deep_stack(run)


def _without_defects(
    session: Session, rules: Sequence[type[Rule]], paths: Sequence[Path]
) -> tuple[list[Path], list[Problem]]:
    """The files that can be checked alone, and the problems of the others."""
    sound, problems = [], []
    for path in paths:
        try:
            check_alone(
                path,
                session.overrides,
                [rule() for rule in rules],
                session.settings.max_file_size,
            )
        except Exception as error:
            problems.append(_defect(path, error))
        else:
            sound.append(path)
    return sound, problems


def _defect(path: Path, error: Exception) -> Problem:
    """The problem of a file on which checking raised."""
    if isinstance(error, RecursionError):
        hint = "leave the file out with `exclude` in [tool.fsdplint]"
        return Problem(str(path), None, "nested too deeply to be followed", hint)
    text = f"internal error: {type(error).__name__}: {error}"
    hint = f"a defect of fsdplint, please report it; {VARIABLE}=1 shows where"
    return Problem(str(path), None, text, hint)

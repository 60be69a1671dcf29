"""The commands that prove a migration, and those that compare it with the program before it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsdplint.migration.report.model import Section
from fsdplint.report.cells import split
from fsdplint.source.files import NOTEBOOK

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

SCRIPT = "SCRIPT"
MAX_COMMANDS = 3
BEFORE = "before"  # the folder beside the project with a copy of it
ARGUMENTS = re.compile(
    r"\bargparse\b|\bsys\.argv\b|\bHfArgumentParser\b"
    r"|^\s*(?:import|from) (?:absl|click|fire|hydra|jsonargparse|simple_parsing|tap|typer|tyro)\b",
    re.MULTILINE,
)


def commands(program: Program, section: Section) -> tuple[list[str], str, str]:
    """The commands, a remark on them, and the file that names the section."""
    entries = _entries(program, section)
    if section.is_blocked or not any(path in program.sources for path in section.files):
        return [], "", (entries or section.files)[0]
    scripts = [path for path in entries if not path.endswith(NOTEBOOK)]
    if entries and not scripts:
        note = "torchrun cannot start a notebook; prove a script that does the same."
        return [], note, entries[0]
    entries = scripts
    if not entries:
        note = "None of the files given runs the model; SCRIPT is the program that does."
        return [f"fsdplint prove {SCRIPT} -- ARGS"], note, section.files[0]
    lines = [f"fsdplint prove {shlex.quote(one)}{_arguments(program, one)}" for one in entries]
    notes = []
    if any(" -- " in line for line in lines):
        notes.append("ARGS are the arguments of a short run that saves and loads what you keep.")
    return lines[:MAX_COMMANDS], " ".join(notes), entries[0]


def with_options(section: Section, options: Sequence[str]) -> None:
    """Add the options of the plan to the commands."""
    head = "fsdplint prove"
    words = " ".join([head, *map(shlex.quote, options)])
    section.prove = [words + line.removeprefix(head) for line in section.prove]


def after_writing(section: Section) -> None:
    """Replace the commands by those that compare with the files before the migration."""
    top = _top(section.title, *section.files, *section.programs)
    copy = _copy_of(top)
    lines = []
    for line in section.prove:
        _, _, script, *rest = shlex.split(line)
        is_named = script != SCRIPT
        inside = os.path.relpath(os.path.realpath(script), top) if is_named else SCRIPT
        old = os.path.join(copy, inside)
        words = ["fsdplint", "prove", old, "--against", script, *rest]
        lines.append(" ".join(map(shlex.quote, words)))
    section.prove = lines
    if lines:
        git = os.path.exists(os.path.join(top, ".git"))
        how = f" (`git worktree add {copy} HEAD` makes one of what was committed)" if git else ""
        note = f"{copy} is a copy of the project as it was{how}."
        section.prove_note = " ".join(filter(None, [note, section.prove_note]))


def validate_command(program: str) -> str:
    """The command that compares a program with what it was before the migration.

    This is the last commit if the program is in the Git repository of the current folder, else a
    copy of its folder.
    """
    path = split(program)[0]
    top = _top(path)
    inside = os.path.relpath(os.path.realpath(path), top)
    here = os.path.realpath(os.getcwd())
    is_here = os.path.join(here, "").startswith(os.path.join(top, ""))
    if is_here and os.path.exists(os.path.join(top, ".git")):
        before = f"HEAD:{inside}"
    else:
        before = os.path.join(_copy_of(top), inside)
    return shlex.join(["fsdplint", "validate", before, path])


def _copy_of(top: str) -> str:
    """The folder beside a project that has a copy of it."""
    return os.path.join(os.path.relpath(os.path.dirname(top)), BEFORE)


def _top(path: str, *others: str) -> str:
    """The root of the Git repository that a file is in, else the folder of it and other files."""
    folders = [os.path.dirname(os.path.realpath(one)) for one in (path, *others)]
    own = os.path.commonpath(folders)
    folder = folders[0]
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return own
        folder = parent


def _entries(program: Program, section: Section) -> list[str]:
    """The programs that run code of the group, those with a constructor first.

    If a file wraps the model while it is imported, the program is the file that imports it.
    """
    from fsdplint.trace import FrameworkConfigured, Fsdp1Used, Wrapped

    found: dict[str, None] = {}
    imported: set[str] = set()
    for trace in program.traces:
        if not trace.complete or trace.entry is None:
            continue
        for event in trace.of(Wrapped, Fsdp1Used, FrameworkConfigured):
            other = isinstance(event, FrameworkConfigured) and event.framework != "lightning"
            if event.site.path in section.files and not other:
                found.setdefault(trace.entry)
                outermost = (event.stack[0] if event.stack else event.site).path
                imported |= {outermost} - {trace.entry}
    return [path for path in found if path not in imported] or list(found)


def files_of_programs(program: Program, section: Section) -> dict[str, frozenset[str]]:
    """The files that each program of a group runs code of, by the file that is run."""
    found: dict[str, set[str]] = {entry: {entry} for entry in _entries(program, section)}
    for trace in program.traces:
        if trace.complete and trace.entry in found:
            found[trace.entry].update(event.site.path for event in trace)
    return {entry: frozenset(files) for entry, files in found.items()}


def _arguments(program: Program, path: str) -> str:
    return " -- ARGS" if ARGUMENTS.search(program.sources[path].text) else ""

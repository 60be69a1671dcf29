"""The commands of `accelerate launch` in the scripts and documents of a project.

accelerate launch --config_file configs/fsdp.yaml train.py --epochs 3
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fsdplint.source import reading
from fsdplint.source.config_files import MAX_BYTES, found_matters
from fsdplint.source.config_files.search import paths_below

SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".md", "Makefile")
MAX_FILES = 200
_LAUNCHER = re.compile(r"\baccelerate(?:\.commands\.|[ \t]+)launch[ \t]+")
_CONTINUED = re.compile(r"\\[ \t]*\r?\n[ \t]*(?:#[ \t]*)?")  # also of a comment
_AROUND = "'\"`.,;:()"  # a word of a sentence


@dataclass(frozen=True)
class Launch:
    """A command that starts a program.

    file: the script or document, by its path from the root of the project. program: the path of
    the program, as it is written there. options: those of the launcher before it, with `_` in
    their names; an option without a value has "". given: those of the program after it.
    """

    file: str
    program: str
    options: tuple[tuple[str, str], ...]
    given: tuple[tuple[str, str], ...] = ()

    def option(self, name: str) -> str | None:
        return dict(self.options).get(name)

    @property
    def switched_on(self) -> frozenset[str]:
        """The options of the program that are flags, or get the value true."""
        return frozenset(name for name, value in self.given if value in ("", "True", "true", "1"))

    def starts(self, path: str, root: str) -> bool:
        """Whether the command, in a project with a root, starts the program of a path.

        The command runs in the folder of its script or in one above it. If the program is in none
        of these, it is the only one with its name in the project.
        """
        written = [part for part in self.program.split("/") if part not in ("", ".", "..")]
        while written and "$" in written[0]:
            del written[0]
        if not written or not _ends_with(path, written):
            return False
        program = "/".join(written) if "$" in self.program else self.program
        for folder in self._folders(root):
            if os.path.isfile(started := os.path.join(folder, program)):
                return os.path.realpath(started) == os.path.realpath(path)
        named = [one for one in paths_below(root, (written[-1],)) if _ends_with(one, written)]
        return len(named) == 1

    def _folders(self, root: str) -> Iterator[str]:
        """The folder of the script and those above it, up to the root of the project."""
        folder = os.path.dirname(self.file)
        while folder:
            yield os.path.join(root, folder)
            folder = os.path.dirname(folder)
        yield root


def _ends_with(path: str, parts: list[str]) -> bool:
    return os.path.abspath(path).replace(os.sep, "/").split("/")[-len(parts) :] == parts


def launches_with_fsdp(launch: Launch, root: str, path: str) -> bool:
    """Whether a command in a project with a root starts the program of a path with FSDP.

    Its file of settings is searched as the program's settings are, and from the folder of the
    script.
    """
    if not launch.starts(path, root):
        return False
    if launch.option("use_fsdp") is not None:
        return True
    written = launch.option("config_file") or ""
    folders = (os.path.dirname(path), root, os.path.join(root, os.path.dirname(launch.file)), "")
    return bool(written) and any(found_matters(Path(folder, written)) for folder in folders)


def find_launches(root: str) -> tuple[Launch, ...]:
    """The commands in the files below a folder, each once, in order."""
    found: list[Launch] = []
    for number, path in enumerate(sorted(paths_below(root, SUFFIXES))):
        if number == MAX_FILES:
            break
        try:
            text = reading.read(path, MAX_BYTES).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            continue
        found.extend(launches_in(text, os.path.relpath(path, root)))
    return tuple(dict.fromkeys(found))


def launches_in(text: str, file: str) -> Iterator[Launch]:
    """The commands in a text."""
    if "accelerate" not in text:
        return
    for line in _CONTINUED.sub(" ", text).splitlines():
        given: tuple[tuple[str, str], ...] = ()
        for command in reversed(_LAUNCHER.split(line)[1:]):
            launch = _launch(command.split(), file)
            if launch is not None:
                # The first lines of another command, in a comment, have the same further lines.
                launch = launch if launch.given else replace(launch, given=given)
                given = launch.given
                yield launch


def _launch(words: list[str], file: str) -> Launch | None:
    """The command of the words after the launcher; None if it names no program."""
    words = [_plain(word) for word in words]
    for place, word in enumerate(words):
        is_module = place > 0 and words[place - 1] in ("-m", "--module")
        if is_module or word.endswith(".py"):
            program = word.replace(".", "/") + ".py" if is_module else word
            return Launch(file, program, _options(words[:place]), _options(words[place + 1 :]))
    return None


def _plain(word: str) -> str:
    """A word without quotes, and a path without the marks of the sentence after it."""
    inner = word.strip(_AROUND)
    return inner if inner.endswith(".py") else word.strip("'\"`")


def _options(words: list[str]) -> tuple[tuple[str, str], ...]:
    """The options in words by their names, each with its first value."""
    options: dict[str, str] = {}
    name = ""  # of an option that may have a value
    for word in words:
        if word.startswith("-"):
            name, _, value = word.lstrip("-").replace("-", "_").partition("=")
            options[name], name = value, "" if value else name
        elif name:
            options[name], name = word, ""
    return tuple(options.items())

"""Read a rule's examples from the files in the folder `examples/CODE` beside the rule.

An example is a file `NAME.bad.py` or `NAME.good.py`; `NAME.fixed.py` is the text of the bad program
after `--fix --unsafe-fixes`. Settings files end in `.yaml`. The comment at the top of a file is its
header: lines `# key: value`, and lines `#     text` that continue a value. It ends at the first
empty line and is not part of the program.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fsdplint.registry.examples import Bad, Examples, Good, Symptom
from fsdplint.registry.rule import Rule

_CONTINUED = "#     "
_KEYS = {
    "bad": {
        *("run", "skip", "page", "raises", "prints", "hangs"),
        *("check-only", "config-dependent", "runtime-only", "target-torch"),
    },
    "fixed": {"run", "skip", "prints"},
    "good": {"run", "skip", "page", "why", "target-torch"},
}
_FLAGS = {"page", "hangs", "check-only", "config-dependent", "runtime-only"}
_SUFFIXES = (".py", ".yaml")


class ExampleError(ValueError):
    """An example file has an invalid name or header."""


@dataclass(frozen=True)
class ExampleFile:
    """An example file: its name in three parts, its header and its program."""

    path: Path
    name: str
    kind: str  # "bad", "fixed" or "good"
    suffix: str
    header: dict[str, str]
    program: str

    def get(self, key: str) -> str | None:
        return self.header.get(key)

    def flag(self, key: str) -> bool:
        return key in self.header


@cache
def examples_of(rule: type[Rule]) -> Examples:
    """The examples of a rule: those of its class, then those in files.

    Raises:
        ExampleError: a file has an invalid name or header, or does not fit the others.
    """
    folder = folder_of(rule)
    files = [] if folder is None else read_folder(folder)
    fixed = {file.name: file for file in files if file.kind == "fixed"}
    bad = [_bad(file, fixed.pop(file.name, None)) for file in files if file.kind == "bad"]
    for file in fixed.values():
        raise ExampleError(f"{file.path}: no bad program has this name")
    good = [_good(file) for file in files if file.kind == "good"]
    return Examples((*rule.bad, *bad), (*rule.good, *good))


def folder_of(rule: type[Rule]) -> Path | None:
    """The folder with the examples of a rule, if there is one."""
    try:
        file = inspect.getfile(rule)
    except (TypeError, OSError):
        return None
    folder = Path(file).parent / "examples" / rule.code
    return folder if folder.is_dir() else None


def read_folder(folder: Path) -> list[ExampleFile]:
    """The files of one rule: those for its page first, then by name.

    Raises:
        ExampleError: a name or a header is invalid.
    """
    files = [read_file(path) for path in folder.iterdir() if path.is_file()]
    for kind in ("bad", "good"):
        if sum(file.kind == kind and file.flag("page") for file in files) > 1:
            raise ExampleError(f"{folder}: several {kind} examples are for the page")
    return sorted(files, key=lambda file: (not file.flag("page"), file.name))


def read_file(path: Path) -> ExampleFile:
    """Read one file.

    Raises:
        ExampleError: its name or its header is invalid.
    """
    name, _, kind = path.stem.partition(".")
    if not name or kind not in _KEYS or path.suffix not in _SUFFIXES:
        raise ExampleError(f"{path}: not a name of an example: NAME.bad.py, NAME.fixed.py, ...")
    head, separator, program = path.read_text(encoding="utf-8").partition("\n\n")
    if not separator:
        raise ExampleError(f"{path}: no empty line ends the header")
    try:
        header = dict(_entries(head.split("\n"), _KEYS[kind]))
    except ValueError as error:
        raise ExampleError(f"{path}: {error}") from None
    return ExampleFile(path, name, kind, path.suffix, header, program.lstrip("\n"))


def _entries(lines: list[str], keys: set[str]) -> Iterator[tuple[str, str]]:
    """The keys and values of a header."""
    entries: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith(_CONTINUED) and entries:
            key, value = entries.pop()
            entries.append((key, f"{value} {line.removeprefix(_CONTINUED)}"))
            continue
        key, colon, value = line.removeprefix("# ").partition(": ")
        if not line.startswith("# ") or not colon or not value.strip():
            raise ValueError(f"not a line of a header: {line!r}")
        if key not in keys:
            raise ValueError(
                f"not a key of this header: {key!r}; known are {', '.join(sorted(keys))}"
            )
        if any(key == other for other, _ in entries):
            raise ValueError(f"the key {key!r} is given twice")
        if key in _FLAGS and value != "yes":
            raise ValueError(f"{key!r} must be `yes` or left out")
        entries.append((key, value))
    yield from entries


def _bad(file: ExampleFile, fixed: ExampleFile | None) -> Bad:
    symptom = Symptom(file.get("raises"), file.get("prints"), file.flag("hangs"))
    return Bad(
        code=file.program,
        symptom=None if symptom == Symptom() else symptom,
        fixed=None if fixed is None else fixed.program,
        healthy=None if fixed is None else fixed.get("prints"),
        config_dependent=file.flag("config-dependent"),
        runtime_only=file.flag("runtime-only"),
        check_only=file.flag("check-only"),
        skip=file.get("skip") or "",
        target_torch=file.get("target-torch"),
        suffix=file.suffix,
        name=file.name,
    )


def _good(file: ExampleFile) -> Good:
    return Good(
        code=file.program,
        why=file.get("why") or "",
        skip=file.get("skip") or "",
        target_torch=file.get("target-torch"),
        suffix=file.suffix,
        name=file.name,
    )

"""The settings of a file: `[tool.fsdplint]` of the nearest pyproject.toml, and the command line."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from fsdplint.config.options import CHECKPOINTS, FORMATS, FULL
from fsdplint.config.patterns import compiled, pattern_error
from fsdplint.diagnostics.codes import ALL, Selection, UnknownRuleError, resolve
from fsdplint.source import reading
from fsdplint.source.files import MAX_BYTES
from fsdplint.source.folders import leads_out

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

FILE = "pyproject.toml"


class SettingsError(Exception):
    """A setting is invalid; the text names the file and the key."""


@dataclass(frozen=True)
class Settings:
    """The settings of the files in one folder.

    Attributes:
        root: the folder of the settings file; patterns are relative to it.
        selection: the enabled rules.
        exclude: patterns (as in .gitignore) of paths that a search leaves out.
        max_file_size: the largest size of code to read, in bytes.
        force_exclude: whether `exclude` also applies to paths that the user names.
        per_file_ignores: patterns with the selectors of rules that are off in matching files.
        target_torch: the oldest torch that the program must support, such as "2.6"; None to use the
            project's requirements (see `fsdplint.config.target_torch`).
        checkpoint: how fixes save sharded states: "full" or "dcp" (see `fsdplint.config.options`).
        output_format: one of `fsdplint.config.options.FORMATS`.
        unsafe_fixes: whether unsafe fixes are applied.
        cache_dir: the folder of the cache; None for the project's own.
        baseline: a file of known findings, which are not reported (see
            `fsdplint.diagnostics.baseline`).
    """

    root: Path = Path()
    selection: Selection = field(default_factory=Selection)
    exclude: tuple[str, ...] = ()
    max_file_size: int = MAX_BYTES
    force_exclude: bool = False
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    target_torch: str | None = None
    checkpoint: str = FULL
    output_format: str = "full"
    unsafe_fixes: bool = False
    cache_dir: Path | None = None
    baseline: Path | None = None

    def enables(self, code: str, path: Path) -> bool:
        """Whether a rule is enabled in a file."""
        if not self.selection.has(code):
            return False
        for pattern, selectors in self.per_file_ignores.items():
            if any(code.startswith(resolve(selector)) for selector in selectors) and _spec(
                (pattern,)
            ).match_file(self._relative(path)):
                return False
        return True

    def excludes(self, path: Path, is_folder: bool) -> bool:
        if not self.exclude:
            return False
        relative = self._relative(path)
        return self._excluded.match_file(relative + "/" if is_folder else relative)

    def lines(self, path: Path) -> list[str]:
        """The settings of a file as text."""
        from fsdplint.diagnostics.codes import known_rules

        values = {
            "rules": [code for code in known_rules() if self.enables(code, path)],
            "exclude": list(self.exclude),
            "max-file-size": self.max_file_size,
            "force-exclude": self.force_exclude,
            "per-file-ignores": {
                name: list(rules) for name, rules in self.per_file_ignores.items()
            },
            "target-torch": self.target_torch or "as the project requires",
            "checkpoint": self.checkpoint,
            "output-format": self.output_format,
            "unsafe-fixes": self.unsafe_fixes,
            "cache-dir": str(self.cache_dir) if self.cache_dir else None,
            "baseline": str(self.baseline) if self.baseline else None,
        }
        settings_lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        return [
            f"Settings of: {path.absolute()}",
            f"Patterns are relative to: {self.root}",
            *settings_lines,
        ]

    @cached_property
    def _excluded(self) -> GitIgnoreSpec:
        return _spec(self.exclude)

    def _relative(self, path: Path) -> str:
        return os.path.relpath(path.absolute(), self.root).replace(os.sep, "/")


@lru_cache(maxsize=1024)
def _spec(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    return compiled(patterns)


@dataclass(frozen=True)
class CommandLine:
    """The settings on the command line; None and () if an option is not given."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    output_format: str | None = None
    unsafe_fixes: bool | None = None
    force_exclude: bool | None = None
    target_torch: str | None = None
    project: bool = False  # fixes may change other files of the project
    baseline: Path | None = None
    no_baseline: bool = False  # also report known findings

    def over(self, settings: Settings) -> Settings:
        """The settings, overridden by the command line.

        Raises:
            SettingsError: a rule is unknown, or a version is invalid.
        """
        if self.target_torch is not None:
            try:
                _version(self.target_torch)
            except ValueError as error:
                raise SettingsError(f"command line: --target-torch {error}") from error
        try:
            if self.select:
                selection = Selection((*self.select, *self.extend_select), self.ignore)
            elif self.ignore or self.extend_select:
                selection = settings.selection.with_more(self.extend_select, self.ignore)
            else:
                selection = settings.selection
        except UnknownRuleError as error:
            raise SettingsError(f"command line: {error}") from error
        return replace(
            settings,
            selection=selection,
            output_format=self.output_format or settings.output_format,
            unsafe_fixes=settings.unsafe_fixes if self.unsafe_fixes is None else self.unsafe_fixes,
            force_exclude=(
                settings.force_exclude if self.force_exclude is None else self.force_exclude
            ),
            target_torch=self.target_torch or settings.target_torch,
            baseline=None if self.no_baseline else self.baseline or settings.baseline,
        )


class SettingsFinder:
    """The settings of all files; reads each settings file once."""

    def __init__(self, command_line: CommandLine | None = None) -> None:
        """Raises SettingsError if the command line itself is invalid."""
        self.command_line = command_line or CommandLine()
        self._by_folder: dict[Path, Settings] = {}
        self.command_line.over(Settings())

    def of(self, path: Path) -> Settings:
        """The settings of a file or folder.

        Raises:
            SettingsError: the nearest settings file is invalid.
        """
        absolute = path.absolute()
        return self.of_folder(absolute if absolute.is_dir() else absolute.parent)

    def of_folder(self, folder: Path) -> Settings:
        known = self._by_folder.get(folder)
        if known is None:
            known = self._read(folder)
            if known is None:
                is_top = folder.parent == folder
                known = (
                    self.command_line.over(Settings(root=folder))
                    if is_top
                    else self.of_folder(folder.parent)
                )
            self._by_folder[folder] = known
        return known

    def excludes(self, path: Path, is_folder: bool) -> bool:
        """Whether the settings exclude a file or folder that a search finds."""
        return self.of_folder(path.absolute().parent).excludes(path, is_folder)

    def leaves_out(self, path: Path) -> bool:
        """Whether the settings exclude a file or folder that the user names."""
        settings = self.of_folder(path.absolute().parent)
        return settings.force_exclude and settings.excludes(path, path.is_dir())

    def _read(self, folder: Path) -> Settings | None:
        file = folder / FILE
        settings = read_settings(file)
        return None if settings is None else self.command_line.over(settings)


def read_settings(file: Path) -> Settings | None:
    """The settings in a pyproject.toml, or None if it has none for this tool.

    Raises:
        SettingsError: the file is not TOML, or has an unknown key or an invalid value.
    """
    try:
        data = reading.read(file, reading.MAX_SETTINGS_BYTES)
        text = data.decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{file}:{line}: not UTF-8, as TOML has to be") from error
    if "fsdplint" not in text:
        return None
    table = _table(file, text)
    if table is None:
        return None
    for key in table:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(_KEYS)}"
            raise SettingsError(f"{file}: unknown key {key!r} in [tool.fsdplint]; {hint}")
    values: dict[str, Any] = {}
    for key, read in _KEYS.items():
        if key in table:
            try:
                values[key] = read(table[key])
            except ValueError as error:
                raise SettingsError(f"{file}: [tool.fsdplint] {key}: {error}") from error
    root = file.parent.absolute()
    return Settings(
        root=root,
        selection=Selection(
            (*values.get("select", (ALL,)), *values.get("extend-select", ())),
            values.get("ignore", ()),
        ),
        exclude=values.get("exclude", ()),
        max_file_size=values.get("max-file-size", MAX_BYTES),
        force_exclude=values.get("force-exclude", False),
        per_file_ignores=values.get("per-file-ignores", {}),
        target_torch=values.get("target-torch"),
        checkpoint=values.get("checkpoint", FULL),
        output_format=values.get("output-format", "full"),
        unsafe_fixes=values.get("unsafe-fixes", False),
        cache_dir=_inside(file, "cache-dir", values),
        baseline=_inside(file, "baseline", values),
    )


def _inside(file: Path, key: str, values: Mapping[str, str]) -> Path | None:
    """The path that a key names, which must be in the folder of the settings."""
    if key not in values:
        return None
    root, name = file.parent.absolute(), PurePath(values[key])
    if name.anchor or ".." in name.parts or values[key].startswith("~"):
        why = f"must lie in the folder of this file, is {values[key]!r}"
    elif leads_out(root, root / name):
        why = f"must lie in the folder of this file; a link leads out of it: {values[key]!r}"
    else:
        return root / name
    raise SettingsError(
        f"{file}: [tool.fsdplint] {key}: {why}; --{key} on the command line names another place"
    )


def _table(file: Path, text: str) -> dict[str, Any] | None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: not a valid TOML file: {error}") from error
    except RecursionError as error:
        raise SettingsError(f"{file}: nested too deeply to be read") from error
    tools = document.get("tool")
    table = tools.get("fsdplint") if isinstance(tools, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise SettingsError(f"{file}: [tool.fsdplint] must be a table")
    return table


# The values of the keys; each function raises ValueError ------------------------------------


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"must be a list of strings, is {value!r}")
    return tuple(value)


def _patterns(value: object) -> tuple[str, ...]:
    patterns = _strings(value)
    for pattern in patterns:
        _refuse_pattern(pattern)
    return patterns


def _refuse_pattern(pattern: str) -> None:
    """Refuse an invalid pattern. Raises ValueError."""
    reason = pattern_error(pattern)
    if reason is not None:
        raise ValueError(f"{pattern!r} is not a pattern: {reason}")


def _selectors(value: object) -> tuple[str, ...]:
    selectors = _strings(value)
    for selector in selectors:
        resolve(selector)
    return selectors


def _per_file(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a table of patterns with lists of rules, is {value!r}")
    for pattern in value:
        _refuse_pattern(str(pattern))
    return {str(pattern): _selectors(selectors) for pattern, selectors in value.items()}


def _version(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"\d+\.\d+(\.\d+)?", value):
        raise ValueError(f'must be a version such as "2.6", is {value!r}')
    return value


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"must be a number of bytes, is {value!r}")
    return value


def _file(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be the name of a file, is {value!r}")
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, is {value!r}")
    return value


def _one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, is {value!r}")
        return value

    return read


_KEYS: dict[str, Callable[[object], Any]] = {
    "select": _selectors,
    "ignore": _selectors,
    "extend-select": _selectors,
    "exclude": _patterns,
    "max-file-size": _size,
    "force-exclude": _boolean,
    "per-file-ignores": _per_file,
    "target-torch": _version,
    "checkpoint": _one_of(CHECKPOINTS),
    "output-format": _one_of(FORMATS),
    "unsafe-fixes": _boolean,
    "cache-dir": _file,
    "baseline": _file,
}

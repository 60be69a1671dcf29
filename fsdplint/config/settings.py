"""The settings of a file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.config.options import FULL
from fsdplint.config.patterns import compile_patterns
from fsdplint.config.run_settings import RunSettings
from fsdplint.diagnostics.codes import Selection, resolve
from fsdplint.source.files import MAX_BYTES

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


class SettingsError(Exception):
    """A setting is invalid; the text names the file and the key."""


@dataclass(frozen=True)
class Settings:
    """The settings of the files in one folder.

    Attributes:
        root: the folder of the settings file; patterns are relative to it.
        selection: the enabled rules.
        exclude: patterns (as in .gitignore) of paths that a search leaves out.
        given_exclude: such patterns of the command line, relative to the current folder.
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
        noqa: whether comments turn findings off.
        run: how `fsdplint prove` and `fsdplint run` run programs.
        file: the settings file; None if there is none.
    """

    root: Path = Path()
    selection: Selection = field(default_factory=Selection)
    exclude: tuple[str, ...] = ()
    given_exclude: tuple[str, ...] = ()
    max_file_size: int = MAX_BYTES
    force_exclude: bool = False
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    target_torch: str | None = None
    checkpoint: str = FULL
    output_format: str = "full"
    unsafe_fixes: bool = False
    cache_dir: Path | None = None
    baseline: Path | None = None
    noqa: bool = True
    run: RunSettings = field(default_factory=RunSettings)
    file: Path | None = None

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

    def arguments_of(self, script: Path) -> tuple[str, ...]:
        """The arguments of a program that is run without any."""
        for pattern, arguments in self.run.arguments.items():
            if _spec((pattern,)).match_file(self._relative(script)):
                return arguments
        return ()

    def excludes(self, path: Path, is_folder: bool) -> bool:
        end = "/" if is_folder else ""
        if self.given_exclude:
            here = os.path.relpath(path).replace(os.sep, "/")
            if _spec(self.given_exclude).match_file(here + end):
                return True
        return bool(self.exclude) and self._exclude_spec.match_file(self._relative(path) + end)

    def lines(self, path: Path) -> list[str]:
        """The settings of a file as text."""
        from fsdplint.diagnostics.codes import known_rules

        values = {
            "rules": [code for code in known_rules() if self.enables(code, path)],
            "exclude": [*self.exclude, *self.given_exclude],
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
            "run": {**self.run.options, "arguments": dict(self.run.arguments)},
        }
        settings_lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        return [
            f"Settings of: {path.absolute()}",
            f"Settings file: {self.file or 'none'}",
            f"Patterns are relative to: {self.root}",
            *settings_lines,
        ]

    @cached_property
    def _exclude_spec(self) -> GitIgnoreSpec:
        return _spec(self.exclude)

    def _relative(self, path: Path) -> str:
        return os.path.relpath(path.absolute(), self.root).replace(os.sep, "/")


@lru_cache(maxsize=1024)
def _spec(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    return compile_patterns(patterns)

"""The settings on the command line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fsdplint.config.settings import Settings, SettingsError
from fsdplint.config.settings_files import refuse_pattern, version
from fsdplint.diagnostics.codes import Selection, UnknownRuleError


@dataclass(frozen=True)
class CommandLine:
    """The settings on the command line; None and () if an option is not given.

    Attributes:
        exclude, extend_exclude: patterns relative to the current folder, instead of those of the
            settings file or beside them.
        config: the settings file of all files, instead of the nearest one.
        isolated: whether settings files are ignored.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    extend_ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    extend_exclude: tuple[str, ...] = ()
    config: Path | None = None
    isolated: bool = False
    ignore_noqa: bool = False
    output_format: str | None = None
    unsafe_fixes: bool | None = None
    force_exclude: bool | None = None
    target_torch: str | None = None
    project: bool = False  # fixes may change other files of the project
    baseline: Path | None = None
    no_baseline: bool = False  # also report known findings

    def override(self, settings: Settings) -> Settings:
        """The settings, overridden by the command line.

        Raises:
            SettingsError: a rule is unknown, or a version is invalid.
        """
        if self.target_torch is not None:
            try:
                version(self.target_torch)
            except ValueError as error:
                raise SettingsError(f"command line: --target-torch {error}") from error
        patterns = (*self.exclude, *self.extend_exclude)
        for pattern in patterns:
            try:
                refuse_pattern(pattern)
            except ValueError as error:
                raise SettingsError(f"command line: --exclude {error}") from error
        ignored = (*self.ignore, *self.extend_ignore)
        try:
            if self.select:
                selection = Selection((*self.select, *self.extend_select), ignored)
            elif ignored or self.extend_select:
                selection = settings.selection.with_more(self.extend_select, ignored)
            else:
                selection = settings.selection
        except UnknownRuleError as error:
            raise SettingsError(f"command line: {error}") from error
        return replace(
            settings,
            selection=selection,
            exclude=() if self.exclude else settings.exclude,
            given_exclude=patterns,
            noqa=not self.ignore_noqa,
            output_format=self.output_format or settings.output_format,
            unsafe_fixes=settings.unsafe_fixes if self.unsafe_fixes is None else self.unsafe_fixes,
            force_exclude=(
                settings.force_exclude if self.force_exclude is None else self.force_exclude
            ),
            target_torch=self.target_torch or settings.target_torch,
            baseline=None if self.no_baseline else self.baseline or settings.baseline,
        )

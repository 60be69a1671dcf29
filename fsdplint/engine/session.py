"""What a command works on: the settings, the files that can matter, and the unsaved texts.

A session does no work. `fsdplint.engine.operations` checks and fixes its files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.config.command_line import CommandLine
from fsdplint.config.settings import Settings, SettingsError
from fsdplint.config.settings_finder import SettingsFinder
from fsdplint.diagnostics.baseline import Baseline, BaselineError
from fsdplint.diagnostics.baseline import read as read_baseline
from fsdplint.discovery import prefilter
from fsdplint.discovery.importers import ImporterSearch, ProjectIndex
from fsdplint.discovery.walk import File, discover, linked_out
from fsdplint.edits.recovery import Recovered, recover
from fsdplint.engine.editable import EditableFiles
from fsdplint.engine.filter import FindingFilter
from fsdplint.engine.workspace import COMPLETE, Effort, Workspace
from fsdplint.source.decoding import decode
from fsdplint.source.files import NOTEBOOK, Problem, Unreadable, decode_or_refuse, missing
from fsdplint.source.folders import project_root

if TYPE_CHECKING:
    from fsdplint.config.options import Assist, Options
    from fsdplint.engine.scope import Scope
    from fsdplint.source.source import Source

STDIN = Path("<stdin>")


class Session:
    """The settings, files and overlays of one command.

    Attributes:
        command_line: what the command line says about the settings.
        settings: those of the first argument (without any, of the current folder); they decide
            what holds for the whole session.
        finder: knows the settings of each file.
        files: all files that were found.
        paths: those that can matter.
        groups: these by programs; files of two groups have nothing to do with each other.
        given: the real paths of `files`.
        linked_out: those of them to which a link leads out of the paths that the user named.
        overrides: texts to use instead of those on disk.
        stdin: the content of the only file, if it comes from standard input.
        projects: the projects of the files.
        editable: the real paths of the files that may be changed.
        filter: decides which findings are enabled.
        problems: what could not be read or checked so far.
        assist: how migrations are assisted; None if they are not.
    """

    def __init__(
        self,
        arguments: Sequence[Path],
        command_line: CommandLine | None = None,
        *,
        stdin: bytes | None = None,
        overlays: Mapping[Path, str] | None = None,
        importers: ImporterSearch | None = None,
        writes: bool = False,
    ) -> None:
        """Find the files that can matter.

        Args:
            arguments: files and folders.
            command_line: what the command line says about the settings.
            stdin: the content of the only argument, if it is not to be read from disk.
            overlays: texts to use instead of those on disk, of any files of the project.
            importers: finds the files that import others; by default the files are searched.
            writes: whether source files will be written, so that an interrupted write is completed.

        Raises:
            SettingsError: the settings are wrong.
            Interrupted: an earlier run was killed while it wrote, and that can't be completed, or
                this session writes nothing.
        """
        self.command_line = command_line or CommandLine()
        self.finder = SettingsFinder(command_line)
        self._root = arguments[0] if arguments else Path()
        self.settings: Settings = self.finder.of(self._root)
        self.problems: list[Problem] = []
        self.assist: Assist | None = None
        self.stdin = stdin
        self._recovered = Recovered()
        self.overrides: dict[Path, str] = dict(overlays or {})
        if stdin is None:
            files = self._on_disk(arguments, writes=writes)
        else:
            files = self._from_stdin(arguments[0], stdin)
        self.files = [file.path for file in files]
        self.given = {file.real for file in files}
        folders = [path for path in arguments if path.is_dir()]
        self._select(files, folders, importers)
        self.linked_out = linked_out(arguments, files) if folders else set()
        self.editable = self._editable()
        for path in self.paths:
            self.finder.of(path)  # a mistake in any of the settings ends the session at once
        self.filter = FindingFilter(self.finder, self.given, self.projects, self._read_baseline())

    def _select(
        self, files: Sequence[File], folders: Sequence[Path], importers: ImporterSearch | None
    ) -> None:
        """Select the files that can matter, and group them by programs."""
        selection = prefilter.select(
            files,
            searched=folders,
            overrides=self.overrides,
            max_bytes=self.settings.max_file_size,
        )
        self.problems += selection.problems
        self.paths = selection.paths
        self.groups = selection.groups
        self.projects = ProjectIndex(self.finder.excludes, self.overrides, importers)
        self.projects.add_imports(selection.users, selection.scanned)

    # Files ------------------------------------------------------------------------------------

    def _on_disk(self, arguments: Sequence[Path], *, writes: bool) -> list[File]:
        wanted = [path for path in arguments if not self.finder.leaves_out(path)]
        journals: list[str] = []
        unsaved = {path for path in wanted if path in self.overrides and not path.exists()}
        wanted = [path for path in wanted if path not in unsaved]
        files, self.problems = discover(wanted, self.finder.excludes, journals)
        self._recovered = recover(arguments, journals, writes=writes)
        return [*files, *(File(path, named=True) for path in sorted(unsaved))]

    def _from_stdin(self, path: Path, data: bytes) -> list[File]:
        if self.finder.leaves_out(path):
            return []
        try:
            text, _, _ = decode_or_refuse(str(path), data)
        except Unreadable as error:
            self.problems.append(error.problem)
            return []
        self.overrides[path] = text
        return [File(path, named=True)]

    def encode_text(self, source: Source, text: str) -> bytes:
        """The content of a file with a text, in the encoding that the file has."""
        if self.stdin is None or source.path.endswith(NOTEBOOK):
            return source.to_bytes(text)
        _, encoding, bom = decode(self.stdin)
        return (self.stdin[:3] if bom else b"") + text.encode(encoding)

    def _editable(self) -> EditableFiles:
        project = None
        if self.command_line.project and self.stdin is None:
            project = Path(os.path.realpath(project_root(self._root)))
        return EditableFiles(self.given, self.linked_out, project, self.finder)

    def recovery_warnings(self) -> list[str]:
        """What became of a write that was interrupted."""
        return [
            *self._recovered.foreign,
            *(
                f"{path}: written now; an earlier run was interrupted before it could"
                for path in self._recovered.written
            ),
        ]

    # Settings ---------------------------------------------------------------------------------

    def settings_of(self, path: Path) -> Settings:
        """The settings of a file or folder."""
        return self.finder.of(path)

    def unsafe_in(self, paths: Sequence[Path]) -> bool:
        """Whether unsafe fixes may be applied to the files of a group."""
        return self._scope.unsafe_fixes(paths)

    def options_of(self, paths: Sequence[Path]) -> Options:
        """Which torch the files of a group have to run on, and how they are fixed."""
        options = self._scope.options(paths or [self._root])
        return options if self.assist is None else replace(options, assist=self.assist)

    @cached_property
    def _scope(self) -> Scope:
        from fsdplint.engine.scope import Scope  # reads requirements, which few sessions need

        return Scope(self.finder, self._note_unreadable)

    def _note_unreadable(self, path: Path, error: OSError) -> None:
        self.add_problems([missing(str(path), error)])

    def _read_baseline(self) -> Baseline | None:
        file = self.settings.baseline
        if file is None:
            return None
        try:
            return read_baseline(file)
        except BaselineError as error:
            raise SettingsError(str(error)) from error

    # Work -------------------------------------------------------------------------------------

    def workspace(self, paths: Sequence[Path], effort: Effort = COMPLETE) -> Workspace:
        """The files of a group, and what holds for them."""
        return Workspace(
            paths,
            self.overrides,
            self.options_of(paths),
            self.projects,
            self.editable,
            self.unsafe_in(paths),
            self.filter,
            not self.problems,
            effort,
            self.settings.max_file_size,
            self._examined_paths - {os.path.realpath(path) for path in paths},
        )

    @cached_property
    def _examined_paths(self) -> frozenset[str]:
        """The real paths of the files that are examined."""
        return frozenset(os.path.realpath(path) for path in self.paths)

    def add_problems(self, problems: Sequence[Problem]) -> None:
        self.problems.extend(one for one in problems if one not in self.problems)

    def sorted_problems(self) -> list[Problem]:
        return sorted(self.problems, key=lambda one: (one.path, one.line or 0, one.message))

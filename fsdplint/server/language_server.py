"""The state of the language server, and what it sends to the editor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from fsdplint.config.command_line import CommandLine
from fsdplint.config.settings import SettingsError
from fsdplint.config.settings_finder import SettingsFinder
from fsdplint.diagnostics.finding import Edit, Safety
from fsdplint.edits.journal import Interrupted
from fsdplint.report.cells import split
from fsdplint.server import convert
from fsdplint.server.analysis import (
    FileFinding,
    RootChecker,
    Stop,
    edits_of,
    line_edits,
)
from fsdplint.server.positions import Lines
from fsdplint.server.schedule import Document, Schedule
from fsdplint.server.views import NotebookDocument, View, views
from fsdplint.source.files import NOTEBOOK, Problem
from fsdplint.trace import Location
from fsdplint.version import __version__

_LISTS = ("select", "ignore", "extendSelect")

# The editor also sends cells that are not Python: messages number all cells of a notebook.
_NOTEBOOKS = types.NotebookDocumentSyncOptions(
    [types.NotebookDocumentFilterWithNotebook("jupyter-notebook")]
)


@dataclass
class FindingFix:
    """The fix of a finding, with the files that it changes."""

    finding: FileFinding
    title: str
    safe: bool
    edits: dict[str, list[Edit]]
    texts: dict[str, str]


class Server(LanguageServer):
    """The language server; it has a schedule as soon as the editor has initialized it."""

    def __init__(self) -> None:
        super().__init__(
            "fsdplint",
            __version__,
            text_document_sync_kind=types.TextDocumentSyncKind.Full,
            notebook_document_sync=_NOTEBOOKS,
        )
        self.schedule: Schedule | None = None

    # Set-up ----------------------------------------------------------------------------------

    def begin(self, options: Any) -> None:
        """Start checking with the settings of the editor."""
        checker = RootChecker(self._command_line(options))
        self.schedule = Schedule(checker, self.publish, self.report_error)
        self.schedule.start()

    def configure(self, options: Any) -> None:
        """Use new settings of the editor, and check again."""
        schedule = self.schedule
        if schedule is None:
            return
        watched = schedule.checker.index.files_are_watched
        schedule.checker = RootChecker(self._command_line(options))
        schedule.checker.index.files_are_watched = watched
        schedule.forget()

    def _command_line(self, options: Any) -> CommandLine:
        settings = options if isinstance(options, dict) else {}
        for key in ("fsdplint", "settings"):
            inner = settings.get(key)
            settings = inner if isinstance(inner, dict) else settings
        wrong = [key for key in _LISTS if not isinstance(settings.get(key) or [], list)]
        if wrong:
            self.report_error(SettingsError(f"{wrong[0]} must be a list of rules"))
            return CommandLine()
        select, ignore, more = (tuple(map(str, settings.get(key) or ())) for key in _LISTS)
        target = settings.get("targetTorch") or None
        command_line = CommandLine(select, ignore, more, target_torch=target)
        try:
            SettingsFinder(command_line)
        except SettingsError as error:
            self.report_error(error)
            return CommandLine()
        return command_line

    # Messages to the editor ------------------------------------------------------------------

    @property
    def encoding(self) -> str:
        encoding = self.workspace.position_encoding or types.PositionEncodingKind.Utf16
        return types.PositionEncodingKind(encoding).value

    def publish(self, document: Document, found: list[FileFinding], unread: list[Problem]) -> None:
        for uri, view in views(document, found).items():
            lines = Lines(view.text, self.encoding)
            diagnostics = [
                convert.diagnostic(one, lines, self.location) for one, _ in view.findings
            ]
            diagnostics += [
                convert.problem(one.message, (cell and one.line) or 1)
                for one in unread
                if (cell := self._cell_of(document, one)) in (None, uri)
            ]
            self.show(uri, self._version(document, uri), diagnostics)

    def show(self, uri: str, version: int | None, diagnostics: list[types.Diagnostic]) -> None:
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri, diagnostics, version=version)
        )

    def report_error(self, error: Exception) -> None:
        text = f"fsdplint: {error}"
        if not isinstance(error, SettingsError | Interrupted):
            text = f"fsdplint: internal error: {type(error).__name__}: {error}"
        self.window_show_message(types.ShowMessageParams(types.MessageType.Error, text))

    def document(self, uri: str) -> Document | None:
        """The document that is checked for a URI: the file, or the notebook of a cell."""
        if self.schedule is None:
            return None
        notebook = self.workspace.get_notebook_document(cell_uri=uri)
        path = convert.path_of(uri if notebook is None else notebook.uri)
        return None if path is None else self.schedule.documents.get(path)

    def view(self, uri: str) -> View | None:
        document = self.document(uri)
        if document is None or self.schedule is None:
            return None
        return views(document, self.schedule.findings(document.path)).get(uri)

    def location(self, at: Location) -> types.Location | None:
        """The editor's location of a place; None for a cell of a notebook that is not open."""
        assert self.schedule is not None
        document = self.schedule.documents.get(os.path.realpath(at.path))
        text = self.schedule.checker.text(at.path) if document is None else document.text
        uri = uris.from_fs_path(at.path) or "" if document is None else document.uri
        if isinstance(document, NotebookDocument):
            number, at = document.place(at)
            text, uri = document.cells[number].text, document.cells[number].uri
        elif at.path.endswith(NOTEBOOK):
            return None  # the cells of a closed notebook have no URIs
        if text is None:
            return None
        lines = Lines(text, self.encoding)
        span = convert.span(lines, at.line, at.column, at.end_line, at.end_column)
        return types.Location(uri, span)

    def _version(self, document: Document, uri: str) -> int:
        if isinstance(document, NotebookDocument):
            return next(cell.version for cell in document.cells if cell.uri == uri)
        return document.version

    def _cell_of(self, document: Document, problem: Problem) -> str | None:
        """The URI of the cell that a problem is in; None for a problem of the document."""
        number = split(problem.path)[1]
        if number is None or not isinstance(document, NotebookDocument):
            return None
        return document.cells[number - 1].uri

    # Fixes -----------------------------------------------------------------------------------

    async def fixes(self, document: Document, found: list[FileFinding]) -> list[FindingFix]:
        """The fixes of findings in a document, computed from the roots that found them."""
        assert self.schedule is not None
        schedule, path = self.schedule, document.path
        keys = {one.key for one in found}
        roots = [
            root
            for root, checked in schedule.checked.items()
            if any(one.key in keys for one in checked.findings.get(path, ()))
        ]
        roots.sort(key=lambda root: root != path)

        def work(texts: Mapping[str, str], stop: Stop) -> list[FindingFix]:
            answers: dict[tuple[object, ...], FindingFix] = {}
            for root in roots:
                checked = schedule.checker.check_with_fixes(root, texts, stop)
                for item in checked.findings.get(path, ()):
                    if item.key not in keys or item.key in answers or checked.result is None:
                        continue
                    edits = edits_of(checked.result, item.finding)
                    fix = item.finding.fix
                    if edits and fix is not None:
                        old = {one: checked.result.sources[one].text for one in edits}
                        safe = fix.safety is Safety.SAFE
                        answers[item.key] = FindingFix(item, fix.title, safe, edits, old)
            return list(answers.values())

        return await schedule.compute(work) or []

    async def fix_all(self, document: Document, *, project: bool) -> types.WorkspaceEdit | None:
        """The edits that `--fix` makes for a document, with `--project` if `project`."""
        assert self.schedule is not None
        schedule, root = self.schedule, document.path
        texts = await schedule.compute(
            lambda texts, stop: schedule.checker.fix(root, texts, stop, project=project)
        )
        texts = texts or {}
        if isinstance(document, NotebookDocument) and set(texts) == {root}:
            cells = document.cell_changes(*texts[root])
            changes = convert.notebook_edit(
                document, cells or {}, self.encoding, self.supports_versions
            )
            return changes if cells else None
        if any(path.endswith(NOTEBOOK) for path in texts):
            return None
        edits = {path: line_edits(path, old, new) for path, (old, new) in texts.items()}
        before = {path: old for path, (old, _) in texts.items()}
        return self.edit(edits, before) if edits else None

    def edit(
        self, edits: Mapping[str, list[Edit]], before: Mapping[str, str]
    ) -> types.WorkspaceEdit | None:
        assert self.schedule is not None
        return convert.workspace_edit(
            edits,
            before.get,
            self.schedule.documents,
            encoding=self.encoding,
            supports_versions=self.supports_versions,
        )

    @property
    def supports_versions(self) -> bool:
        """Whether the editor accepts edits for a version of a document."""
        capabilities = self.client_capabilities.workspace
        wanted = capabilities.workspace_edit if capabilities is not None else None
        return bool(wanted is not None and wanted.document_changes)

"""An editor: pygls's own client, which talks to `fsdplint server` over its standard streams."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import BaseLanguageClient

ROOT = Path(__file__).parents[2]
PATIENCE = 300  # seconds: so long that only what never comes meets it


class Editor(BaseLanguageClient):
    """A client that keeps what it is shown, and applies edits as an editor does."""

    def __init__(self) -> None:
        super().__init__("test-editor", "1")
        self.shown: dict[str, types.PublishDiagnosticsParams] = {}
        self.messages: list[str] = []
        self.logs: list[str] = []
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.notebooks: dict[str, list[str]] = {}  # the cells of notebooks
        self._notebook_version = 1
        self._news = asyncio.Event()

        @self.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.shown[params.uri] = params
            self._news.set()

        @self.feature(types.WINDOW_SHOW_MESSAGE)
        def message(params: types.ShowMessageParams) -> None:
            self.messages.append(params.message)
            self._news.set()

        @self.feature(types.WINDOW_LOG_MESSAGE)
        def log(params: types.LogMessageParams) -> None:
            self.logs.append(params.message)
            self._news.set()

        @self.feature(types.CLIENT_REGISTER_CAPABILITY)
        def register(params: types.RegistrationParams) -> None:
            pass

    async def begin(self, folder: Path, options: Any = None, **capabilities: Any) -> None:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        await self.start_io(
            sys.executable,
            *("-m", "fsdplint", "server", "--stdio"),
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
        )
        workspace = types.WorkspaceClientCapabilities(
            workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True),
            did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(
                dynamic_registration=True
            ),
        )
        notebooks = types.NotebookDocumentClientCapabilities(
            types.NotebookDocumentSyncClientCapabilities()
        )
        given = {"workspace": workspace, "notebook_document": notebooks, **capabilities}
        capable = types.ClientCapabilities(**given)
        params = types.InitializeParams(
            capabilities=capable,
            root_uri=folder.as_uri(),
            workspace_folders=[types.WorkspaceFolder(folder.as_uri(), folder.name)],
            initialization_options=options,
        )
        self.initialized = await self.initialize_async(params)
        self.protocol.notify(types.INITIALIZED, types.InitializedParams())

    async def end(self) -> None:
        await self.shutdown_async(None)
        self.exit(None)
        await asyncio.wait_for(self._server.wait(), PATIENCE)  # type: ignore[union-attr]
        await self.stop()

    # Documents ---------------------------------------------------------------------------------

    def open(self, path: Path, text: str | None = None, language: str = "python") -> str:
        uri = path.as_uri()
        self.texts[uri] = path.read_text() if text is None else text
        self.versions[uri] = 1
        item = types.TextDocumentItem(uri, language, 1, self.texts[uri])
        self.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def change(self, uri: str, text: str) -> None:
        self.texts[uri] = text
        self.versions[uri] += 1
        self.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(self.versions[uri], uri),
                [types.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    def close(self, uri: str) -> None:
        self.text_document_did_close(
            types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri))
        )

    # Notebooks ---------------------------------------------------------------------------------

    def open_notebook(self, path: Path, *cells: str) -> list[str]:
        """Open a notebook; a cell that begins with "# " and a capital is Markdown."""
        uris = [f"notebook-cell:{path}#{n}" for n in range(len(cells))]
        self.notebooks[path.as_uri()] = uris
        items, documents = [], []
        for uri, text in zip(uris, cells, strict=True):
            markup = text[:2] == "# " and text[2:3].isupper()
            items.append(types.NotebookCell(types.NotebookCellKind(1 if markup else 2), uri))
            documents.append(self._item(uri, text, "markdown" if markup else "python"))
        notebook = types.NotebookDocument(path.as_uri(), "jupyter-notebook", 1, items)
        self.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, documents))
        return uris

    def _item(self, uri: str, text: str, language: str) -> types.TextDocumentItem:
        self.texts[uri], self.versions[uri] = text, 1
        return types.TextDocumentItem(uri, language, 1, text)

    def change_cell(self, notebook: Path, uri: str, text: str) -> None:
        self.texts[uri] = text
        self.versions[uri] += 1
        content = types.NotebookDocumentCellContentChanges(
            types.VersionedTextDocumentIdentifier(self.versions[uri], uri),
            [types.TextDocumentContentChangeWholeDocument(text)],
        )
        self._change_notebook(notebook, types.NotebookDocumentCellChanges(text_content=[content]))

    def change_cells(self, notebook: Path, start: int, removed: int, *texts: str) -> list[str]:
        """Take cells away, and put others there."""
        uris = self.notebooks[notebook.as_uri()]
        new = [f"notebook-cell:{notebook}#new{len(uris)}{n}" for n in range(len(texts))]
        gone = uris[start : start + removed]
        uris[start : start + removed] = new
        cells = [types.NotebookCell(types.NotebookCellKind.Code, uri) for uri in new]
        structure = types.NotebookDocumentCellChangeStructure(
            types.NotebookCellArrayChange(start, removed, cells),
            did_open=[self._item(uri, t, "python") for uri, t in zip(new, texts, strict=True)],
            did_close=[types.TextDocumentIdentifier(uri) for uri in gone],
        )
        self._change_notebook(notebook, types.NotebookDocumentCellChanges(structure=structure))
        return new

    def _change_notebook(self, path: Path, changes: types.NotebookDocumentCellChanges) -> None:
        self._notebook_version += 1
        self.notebook_document_did_change(
            types.DidChangeNotebookDocumentParams(
                types.VersionedNotebookDocumentIdentifier(self._notebook_version, path.as_uri()),
                types.NotebookDocumentChangeEvent(cells=changes),
            )
        )

    def close_notebook(self, path: Path) -> None:
        uris = self.notebooks[path.as_uri()]
        self.notebook_document_did_close(
            types.DidCloseNotebookDocumentParams(
                types.NotebookDocumentIdentifier(path.as_uri()),
                [types.TextDocumentIdentifier(uri) for uri in uris],
            )
        )

    # What comes --------------------------------------------------------------------------------

    async def until(self, condition: Any) -> None:
        """Wait until what was shown fulfils a condition."""

        async def wait() -> None:
            while not condition():
                self._news.clear()
                await self._news.wait()

        await asyncio.wait_for(wait(), PATIENCE)

    def codes(self, uri: str) -> list[str] | None:
        """The codes that are shown for a document as it is now; None as long as none are."""
        shown = self.shown.get(uri)
        if shown is None or shown.version != self.versions.get(uri):
            return None
        return [str(one.code) for one in shown.diagnostics]

    async def expect(self, uri: str, *codes: str) -> list[types.Diagnostic]:
        """Wait until just these codes are shown for the document as it is now."""
        await self.until(lambda: self.codes(uri) == list(codes))
        return list(self.shown[uri].diagnostics)

    async def actions(
        self, uri: str, place: types.Range, only: list[Any] | None = None
    ) -> list[types.CodeAction]:
        found = await self.text_document_code_action_async(
            types.CodeActionParams(
                types.TextDocumentIdentifier(uri), place, types.CodeActionContext([], only=only)
            )
        )
        return [one for one in found or [] if isinstance(one, types.CodeAction)]

    def apply(self, edit: types.WorkspaceEdit) -> set[str]:
        """Apply an edit to the texts of documents, and tell the server; gives what changed."""
        changed = set()
        for one in edit.document_changes or []:
            assert isinstance(one, types.TextDocumentEdit)
            uri = one.text_document.uri
            if uri in self.texts:
                assert one.text_document.version == self.versions[uri], "an edit of another version"
            else:
                assert one.text_document.version is None
                self.texts[uri] = Path(uri.removeprefix("file://")).read_text()
                self.versions[uri] = 0
            text = self.texts[uri]
            for change in sorted(one.edits, key=lambda e: _key(e), reverse=True):
                start, end = _offset(text, change.range.start), _offset(text, change.range.end)
                text = text[:start] + change.new_text + text[end:]
            self.texts[uri] = text
            changed.add(uri)
        return changed


def _key(edit: Any) -> tuple[int, int]:
    return edit.range.start.line, edit.range.start.character


def _offset(text: str, position: types.Position) -> int:
    """Counted the other way round than the server does: in bytes of UTF-16."""
    lines = text.split("\n")
    line = lines[position.line].encode("utf-16-le")
    before = sum(len(one) + 1 for one in lines[: position.line])
    return before + len(line[: 2 * position.character].decode("utf-16-le"))


def whole(text: str) -> types.Range:
    return types.Range(types.Position(0, 0), types.Position(text.count("\n"), 0))


def edit_with(folder: Path, body: Any, options: Any = None) -> None:
    """Run a test with an editor that has a server."""

    async def run() -> None:
        editor = Editor()
        await editor.begin(folder, options)
        try:
            await body(editor)
        finally:
            await editor.end()

    asyncio.run(run())

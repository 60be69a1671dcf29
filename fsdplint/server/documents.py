"""Notifications about documents: opened, changed, closed."""

from __future__ import annotations

from lsprotocol import types

from fsdplint.server import convert
from fsdplint.server.language_server import Server
from fsdplint.server.schedule import Document
from fsdplint.server.views import Cell, NotebookDocument
from fsdplint.source.config_files import SUFFIXES as CONFIGS
from fsdplint.source.files import NOTEBOOK, SUFFIXES


def text_documents(server: Server) -> None:
    """Register the handlers for files."""

    def check_document(uri: str, version: int | None) -> None:
        path = convert.path_of(uri)
        supported = path is not None and path.endswith((*SUFFIXES, *CONFIGS))
        if path is not None and supported and not path.endswith(NOTEBOOK) and server.schedule:
            text = server.workspace.get_text_document(uri).source
            server.schedule.update_document(Document(uri, path, version or 0, text))

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        check_document(params.text_document.uri, params.text_document.version)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        check_document(params.text_document.uri, params.text_document.version)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        path = convert.path_of(params.text_document.uri)
        if path is not None and server.schedule is not None:
            server.schedule.close_document(path)


def notebooks(server: Server) -> None:
    """Register the handlers for notebooks, whose cells are documents of the editor."""

    def check_document(uri: str) -> None:
        path = convert.path_of(uri)
        notebook = server.workspace.get_notebook_document(notebook_uri=uri)
        if path is None or notebook is None or server.schedule is None:
            return
        if not path.endswith(NOTEBOOK):
            return
        before = server.schedule.documents.get(path)
        cells = []
        for cell in notebook.cells:
            item = server.workspace.get_text_document(cell.document)
            code = cell.kind == types.NotebookCellKind.Code
            code = code and item.language_id in (None, "", "python")
            cells.append(Cell(cell.document, item.version or 0, item.source, code))
        document = NotebookDocument.of(uri, path, notebook.version, cells)
        server.schedule.update_document(document)
        if isinstance(before, NotebookDocument):
            old_uris = {cell.uri for cell in before.cells if cell.code}
            for removed in old_uris - {cell.uri for cell in cells if cell.code}:
                server.show(removed, None, [])

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenNotebookDocumentParams) -> None:
        check_document(params.notebook_document.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeNotebookDocumentParams) -> None:
        check_document(params.notebook_document.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseNotebookDocumentParams) -> None:
        path = convert.path_of(params.notebook_document.uri)
        if path is not None and server.schedule is not None:
            server.schedule.close_document(path)

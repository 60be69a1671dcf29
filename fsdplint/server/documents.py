"""What the editor tells of its documents: opened, changed, closed."""

from __future__ import annotations

from lsprotocol import types

from fsdplint.server import convert
from fsdplint.server.language_server import Server
from fsdplint.server.schedule import Document
from fsdplint.server.views import Cell, NotebookDocument
from fsdplint.source.config_files import SUFFIXES as CONFIGS
from fsdplint.source.files import NOTEBOOK, SUFFIXES


def text_documents(server: Server) -> None:
    """Files, each a document of its own."""

    def changed(uri: str, version: int | None) -> None:
        path = convert.path_of(uri)
        known = path is not None and path.endswith((*SUFFIXES, *CONFIGS))
        if path is not None and known and not path.endswith(NOTEBOOK) and server.schedule:
            text = server.workspace.get_text_document(uri).source
            server.schedule.changed(Document(uri, path, version or 0, text))

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        changed(params.text_document.uri, params.text_document.version)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def edited(params: types.DidChangeTextDocumentParams) -> None:
        changed(params.text_document.uri, params.text_document.version)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        path = convert.path_of(params.text_document.uri)
        if path is not None and server.schedule is not None:
            server.schedule.closed(path)


def notebooks(server: Server) -> None:
    """Notebooks, whose cells are documents."""

    def changed(uri: str) -> None:
        path, notebook = (
            convert.path_of(uri),
            server.workspace.get_notebook_document(notebook_uri=uri),
        )
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
        server.schedule.changed(document)
        if isinstance(before, NotebookDocument):
            for gone in {one.uri for one in before.cells if one.code} - {
                one.uri for one in cells if one.code
            }:
                server.show(gone, None, [])

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenNotebookDocumentParams) -> None:
        changed(params.notebook_document.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def edited(params: types.DidChangeNotebookDocumentParams) -> None:
        changed(params.notebook_document.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseNotebookDocumentParams) -> None:
        path = convert.path_of(params.notebook_document.uri)
        if path is not None and server.schedule is not None:
            server.schedule.closed(path)

"""Converts findings, problems and edits to types of the protocol."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from lsprotocol import types
from pygls import uris

from fsdplint.diagnostics.finding import Edit, RuleInfo, Severity
from fsdplint.registry.rule import Rule
from fsdplint.report.pages import section, summary, text
from fsdplint.report.records import condition
from fsdplint.report.urls import page_of
from fsdplint.server.analysis import FileFinding
from fsdplint.server.positions import Lines
from fsdplint.server.schedule import Document
from fsdplint.server.views import NotebookDocument
from fsdplint.source.files import NOTEBOOK
from fsdplint.trace import Location

NAME = "fsdplint"
_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.INFO: types.DiagnosticSeverity.Information,
}

TextOf = Callable[[str], str | None]  # the text of a file, by its path
LocationOf = Callable[[Location], types.Location | None]  # the editor's location of a place


def path_of(uri: str) -> str | None:
    """The real path of a document; None if the URI is not that of a file."""
    path = uris.to_fs_path(uri) if uri.startswith("file:") else None
    return None if path is None else os.path.realpath(path)


def span(lines: Lines, line: int, column: int, end_line: int, end_column: int) -> types.Range:
    """The range of a span whose lines and columns count characters from 1."""
    start = lines.of_column(line, column)
    end = lines.of_column(end_line or line, end_column or column)
    return types.Range(types.Position(*start), types.Position(*max(start, end)))


def diagnostic(item: FileFinding, lines: Lines, location_of: LocationOf) -> types.Diagnostic:
    """The diagnostic of a finding."""
    finding, at, rule = item.finding, item.at, item.finding.rule
    url = page_of(rule)
    related = [(location_of(site.location()), word) for site, word in finding.related]
    return types.Diagnostic(
        range=span(lines, at.line, at.column, at.end_line, at.end_column),
        message=finding.message + condition(finding),
        severity=_SEVERITIES[rule.severity],
        code=rule.code,
        code_description=types.CodeDescription(url) if url else None,
        source=NAME,
        related_information=[
            types.DiagnosticRelatedInformation(place, word)
            for place, word in related
            if place is not None
        ],
    )


def problem(message: str, line: int = 1) -> types.Diagnostic:
    """The diagnostic of a document that cannot be checked."""
    start = types.Position(line - 1, 0)
    return types.Diagnostic(
        range=types.Range(start, start),
        message=message,
        severity=types.DiagnosticSeverity.Warning,
        code="FSDP901",
        source=NAME,
    )


def workspace_edit(
    edits: Mapping[str, Iterable[Edit]],
    text_of: TextOf,
    documents: Mapping[str, Document],
    *,
    encoding: str,
    supports_versions: bool,
) -> types.WorkspaceEdit | None:
    """Edits of files; None if a file is unreadable by now, or a notebook that is not open."""
    parts: list[tuple[str, int | None, str, Iterable[Edit]]] = []
    for path, several in sorted(edits.items()):
        before = text_of(path)
        document = documents.get(os.path.realpath(path))
        if before is None or (path.endswith(NOTEBOOK) and document is None):
            return None
        if isinstance(document, NotebookDocument):
            in_cells = document.cell_edits(several)
            if in_cells is None:
                return None
            parts += _cells(document, in_cells)
        elif document is not None:
            parts.append((document.uri, document.version, before, several))
        else:
            parts.append((uris.from_fs_path(path) or "", None, before, several))
    return _edit_of(parts, encoding, supports_versions)


def notebook_edit(
    document: NotebookDocument,
    edits: Mapping[int, Iterable[Edit]],
    encoding: str,
    supports_versions: bool,
) -> types.WorkspaceEdit:
    """Edits of the cells of a notebook."""
    return _edit_of(_cells(document, edits), encoding, supports_versions)


def _cells(
    document: NotebookDocument, edits: Mapping[int, Iterable[Edit]]
) -> list[tuple[str, int | None, str, Iterable[Edit]]]:
    cells = document.cells
    return [
        (cells[number].uri, cells[number].version, cells[number].text, several)
        for number, several in sorted(edits.items())
    ]


def _edit_of(
    parts: Iterable[tuple[str, int | None, str, Iterable[Edit]]],
    encoding: str,
    supports_versions: bool,
) -> types.WorkspaceEdit:
    """Edits of the editor's documents, given as URI, version, text and edits of each.

    supports_versions: whether the editor accepts edits for a version of a document.
    """
    changes: dict[str, list[types.TextEdit]] = {}
    versions: dict[str, int | None] = {}
    for uri, version, before, several in parts:
        lines = Lines(before, encoding)
        versions[uri] = version
        changes[uri] = [
            types.TextEdit(
                types.Range(
                    types.Position(*lines.position(edit.start)),
                    types.Position(*lines.position(edit.end)),
                ),
                edit.text,
            )
            for edit in several
        ]
    if not supports_versions:
        return types.WorkspaceEdit(changes=changes)
    return types.WorkspaceEdit(
        document_changes=[
            types.TextDocumentEdit(
                types.OptionalVersionedTextDocumentIdentifier(uri, versions[uri]), list(texts)
            )
            for uri, texts in changes.items()
        ]
    )


def page(rule: type[Rule]) -> str:
    """A rule's page in Markdown."""
    return "\n".join(text(rule))


def short_page(rule: type[RuleInfo]) -> str:
    """The title of a rule's page and the section that says why the code is bad."""
    url = page_of(rule)
    title = f"[{rule.code}]({url})" if url else rule.code
    why = section(rule, "Why is this bad?")
    return f"{title} `{rule.name}`: {summary(rule)}\n\n{why}"

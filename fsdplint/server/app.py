"""The language server: what the editor asks and tells."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from fsdplint import __version__
from fsdplint.configs import SUFFIXES as CONFIGS
from fsdplint.files import NOTEBOOK, SUFFIXES
from fsdplint.rule import Edit, Safety, rule_by_code
from fsdplint.server import convert
from fsdplint.server.analysis import (
    Seen,
    Stop,
    Workspace,
    at_positions,
    edits_of,
    line_edits,
)
from fsdplint.server.positions import Lines
from fsdplint.server.schedule import Document, Schedule
from fsdplint.settings import CommandLine, SettingsError, SettingsFinder

FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.fsdplint"
FIX_PROJECT = f"{types.CodeActionKind.Source.value}.fixProject.fsdplint"
_WORD = re.compile(r"[A-Za-z0-9][\w-]*")
_LISTS = ("select", "ignore", "extendSelect")


@dataclass
class _Answer:
    """The fix of a finding, with the files that it changes."""

    seen: Seen
    title: str
    safe: bool
    edits: dict[str, list[Edit]]
    texts: dict[str, str]


class Server(LanguageServer):
    """The server, with its schedule once the editor has said what it can do."""

    def __init__(self) -> None:
        super().__init__(
            "fsdplint", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full
        )
        self.schedule: Schedule | None = None

    # Set-up ----------------------------------------------------------------------------------

    def begin(self, options: Any) -> None:
        """Start checking, with what the editor's settings say."""
        workspace = Workspace(self._command_line(options))
        self.schedule = Schedule(workspace, self.publish, self.failed)
        self.schedule.start()

    def configure(self, options: Any) -> None:
        """The editor's settings are others now."""
        schedule = self.schedule
        if schedule is None:
            return
        watched = schedule.workspace.index.watched
        schedule.workspace = Workspace(self._command_line(options))
        schedule.workspace.index.watched = watched
        schedule.forget()

    def _command_line(self, options: Any) -> CommandLine:
        settings = options if isinstance(options, dict) else {}
        for key in ("fsdplint", "settings"):
            inner = settings.get(key)
            settings = inner if isinstance(inner, dict) else settings
        select, ignore, more = (tuple(map(str, settings.get(key) or ())) for key in _LISTS)
        target = settings.get("targetTorch") or None
        command_line = CommandLine(select, ignore, more, target_torch=target)
        try:
            SettingsFinder(command_line)
        except SettingsError as error:
            self.failed(error)
            return CommandLine()
        return command_line

    # What is shown ---------------------------------------------------------------------------

    @property
    def encoding(self) -> str:
        encoding = self.workspace.position_encoding or types.PositionEncodingKind.Utf16
        return types.PositionEncodingKind(encoding).value

    def publish(self, document: Document, found: list[Seen], unread: list[str]) -> None:
        lines = Lines(document.text, self.encoding)
        shown = [convert.diagnostic(one, lines, self.uri_of, self.text_of) for one in found]
        shown += [convert.problem(message) for message in unread]
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(document.uri, shown, version=document.version)
        )

    def failed(self, error: Exception) -> None:
        text = f"fsdplint: {error}"
        if not isinstance(error, SettingsError):
            text = f"fsdplint: internal error: {type(error).__name__}: {error}"
        self.window_show_message(types.ShowMessageParams(types.MessageType.Error, text))

    def document(self, uri: str) -> Document | None:
        path = convert.path_of(uri)
        if path is None or self.schedule is None:
            return None
        return self.schedule.documents.get(path)

    def uri_of(self, path: str) -> str:
        document = self.schedule.documents.get(path) if self.schedule is not None else None
        return document.uri if document is not None else uris.from_fs_path(path) or ""

    def text_of(self, path: str) -> str | None:
        document = self.schedule.documents.get(path) if self.schedule is not None else None
        if document is not None:
            return document.text
        if self.schedule is None:
            return None
        return self.schedule.workspace.text(path)

    # Fixes -----------------------------------------------------------------------------------

    async def fixes(self, document: Document, found: list[Seen]) -> list[_Answer]:
        """The fixes of some findings in a document, from the roots that found them."""
        assert self.schedule is not None
        schedule, path = self.schedule, document.path
        keys = {one.key for one in found}
        roots = [
            root
            for root, checked in schedule.checked.items()
            if any(one.key in keys for one in checked.found.get(path, ()))
        ]
        roots.sort(key=lambda root: root != path)

        def work(texts: Mapping[str, str], stop: Stop) -> list[_Answer]:
            answers: dict[tuple[object, ...], _Answer] = {}
            for root in roots:
                checked = schedule.workspace.check_with_fixes(root, texts, stop)
                for seen in checked.found.get(path, ()):
                    if seen.key not in keys or seen.key in answers or checked.result is None:
                        continue
                    edits = edits_of(checked.result, seen.finding)
                    fix = seen.finding.fix
                    if edits and fix is not None:
                        old = {one: checked.result.sources[one].text for one in edits}
                        safe = fix.safety is Safety.SAFE
                        answers[seen.key] = _Answer(seen, fix.title, safe, edits, old)
            return list(answers.values())

        answered = await schedule.ask(work)
        return [] if answered is None else answered[0]

    async def fix_all(self, document: Document, *, project: bool) -> types.WorkspaceEdit | None:
        """Everything that `--fix` (and `--project`) would change from a document."""
        assert self.schedule is not None
        schedule, root = self.schedule, document.path
        answered = await schedule.ask(
            lambda texts, stop: schedule.workspace.fix(root, texts, stop, project=project)
        )
        texts = answered[0] if answered is not None else {}
        edits = {path: line_edits(path, old, new) for path, (old, new) in texts.items()}
        before = {path: old for path, (old, _) in texts.items()}
        return self.edit(edits, before) if edits else None

    def edit(
        self, edits: Mapping[str, list[Edit]], before: Mapping[str, str]
    ) -> types.WorkspaceEdit | None:
        assert self.schedule is not None
        capabilities = self.client_capabilities.workspace
        wanted = capabilities.workspace_edit if capabilities is not None else None
        return convert.workspace_edit(
            edits,
            before.get,
            self.schedule.documents,
            encoding=self.encoding,
            versioned=bool(wanted is not None and wanted.document_changes),
        )


def create() -> Server:
    """The server with all that it answers."""
    server = Server()

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.begin(params.initialization_options)

    @server.feature(types.INITIALIZED)
    def initialized(_: types.InitializedParams) -> None:
        workspace = server.client_capabilities.workspace
        watching = workspace.did_change_watched_files if workspace is not None else None
        if watching is None or not watching.dynamic_registration:
            return
        endings = ",".join(one.lstrip(".") for one in (*SUFFIXES, *CONFIGS, ".toml"))
        options = types.DidChangeWatchedFilesRegistrationOptions(
            [types.FileSystemWatcher(f"**/*.{{{endings}}}")]
        )
        registration = types.Registration(
            "fsdplint-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options
        )
        server.client_register_capability(types.RegistrationParams([registration]))
        if server.schedule is not None:
            server.schedule.workspace.index.watched = True

    @server.feature(types.SHUTDOWN)
    def shutdown(_: None) -> None:
        if server.schedule is not None:
            server.schedule.stop()

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configuration(params: types.DidChangeConfigurationParams) -> None:
        server.configure(params.settings)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def watched(_: types.DidChangeWatchedFilesParams) -> None:
        if server.schedule is not None:
            server.schedule.forget()

    _documents(server)
    _code_actions(server)
    _hover(server)
    return server


def _documents(server: Server) -> None:
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


def _code_actions(server: Server) -> None:
    kinds: list[types.CodeActionKind | str] = [
        types.CodeActionKind.QuickFix,
        FIX_ALL,
        FIX_PROJECT,
    ]

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=kinds, resolve_provider=True),
    )
    async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        document = server.document(params.text_document.uri)
        if document is None or server.schedule is None:
            return []
        only = params.context.only
        result = []
        if _wanted(types.CodeActionKind.QuickFix.value, only):
            result += await _quick_fixes(server, document, params.range)
        if only is None and not server.schedule.findings(document.path):
            return result  # nothing to fix: the menu stays short
        for kind, title in _WHOLE.items():
            if not _wanted(kind, only):
                continue
            action = types.CodeAction(title, kind, data={"uri": document.uri, "kind": kind})
            if only is not None:  # asked for it (on save, say), and applies what it gets
                action = await resolve(action)
                if action.edit is None:
                    continue
            result.append(action)
        return result

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        data = action.data if isinstance(action.data, dict) else {}
        document = server.document(str(data.get("uri", "")))
        if document is not None and action.edit is None:
            action.edit = await server.fix_all(document, project=data.get("kind") == FIX_PROJECT)
        return action


_WHOLE = {
    FIX_ALL: "fsdplint: fix all in this file",
    FIX_PROJECT: "fsdplint: fix all in this file, and what has to change with it",
}


def _wanted(kind: str, only: Any) -> bool:
    """Whether an action of a kind is wanted; kinds are paths of dots."""
    if only is None:
        return True
    names = [str(getattr(one, "value", one)) for one in only]
    return any(not name or kind == name or kind.startswith(name + ".") for name in names)


async def _quick_fixes(
    server: Server, document: Document, place: types.Range
) -> list[types.CodeAction]:
    assert server.schedule is not None
    first, last = place.start.line + 1, place.end.line + 1
    found = at_positions(server.schedule.findings(document.path), first, last)
    if not found:
        return []
    result = []
    for answer in await server.fixes(document, found):
        edit = server.edit(answer.edits, answer.texts)
        if edit is None:
            continue
        lines = Lines(answer.seen.text, server.encoding)
        others = len(answer.edits) - (answer.seen.at.path in answer.edits)
        where = f" (also in {others} other file{'s' if others > 1 else ''})" if others else ""
        unsafe = "" if answer.safe else " (unsafe: may change what the program does)"
        result.append(
            types.CodeAction(
                title=f"{answer.title}{where}{unsafe}",
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[convert.diagnostic(answer.seen, lines, server.uri_of, server.text_of)],
                edit=edit,
                is_preferred=answer.safe,
            )
        )
    return result


def _hover(server: Server) -> None:
    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        document = server.document(params.text_document.uri)
        if document is None or server.schedule is None:
            return None
        lines, at = Lines(document.text, server.encoding), params.position
        column = lines.offset(at.line, at.character) - lines.offset(at.line, 0)
        line = lines.line(at.line)
        for match in _WORD.finditer(line):
            if match.start() <= column <= match.end() and "#" in line[: match.start()]:
                rule = rule_by_code(match.group())
                if rule is not None:
                    return _markdown(convert.page(rule))
        parts = []
        place = (at.line + 1, column + 1)
        for one in server.schedule.findings(document.path):
            if (one.at.line, one.at.column) <= place <= (one.at.end_line, one.at.end_column):
                help = f"\n\n**Help:** {one.finding.help}" if one.finding.help else ""
                parts.append(convert.short_page(one.finding.rule) + help)
        return _markdown("\n\n---\n\n".join(parts)) if parts else None


def _markdown(text: str) -> types.Hover:
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text))


def serve() -> None:
    """Answer an editor over standard input and output."""
    sys.setswitchinterval(0.001)  # so that the loop answers while a check is under way
    create().start_io()

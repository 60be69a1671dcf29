"""Requests about a place: code actions and hover."""

from __future__ import annotations

import re
from typing import Any

from lsprotocol import types

from fsdplint.registry.rules import rule_by_code
from fsdplint.server import convert
from fsdplint.server.language_server import Server
from fsdplint.server.positions import Lines
from fsdplint.server.views import View

FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.fsdplint"
FIX_PROJECT = f"{types.CodeActionKind.Source.value}.fixProject.fsdplint"
_WORD = re.compile(r"[A-Za-z0-9][\w-]*")


def code_actions(server: Server) -> None:
    """Register the code actions: the fixes of findings and of files."""
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
        uri = params.text_document.uri
        view = server.view(uri)
        if view is None or server.schedule is None:
            return []
        only = params.context.only
        result = []
        if _is_requested(types.CodeActionKind.QuickFix.value, only):
            result += await _quick_fixes(server, view, params.range)
        if only is None and not server.schedule.findings(view.document.path):
            return result  # nothing to fix: keep the menu short
        for kind, title in _FIX_ALL_TITLES.items():
            if not _is_requested(kind, only):
                continue
            action = types.CodeAction(title, kind, data={"uri": uri, "kind": kind})
            if only is not None:  # the editor asked for this kind (on save) and applies it
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


_FIX_ALL_TITLES = {
    FIX_ALL: "fsdplint: fix all in this file",
    FIX_PROJECT: "fsdplint: fix all in this file and in files that must change with it",
}


def _is_requested(kind: str, only: Any) -> bool:
    """Whether `only` includes an action's kind; `a.b` is a kind of `a`."""
    if only is None:
        return True
    names = [str(getattr(one, "value", one)) for one in only]
    return any(not name or kind == name or kind.startswith(name + ".") for name in names)


async def _quick_fixes(server: Server, view: View, place: types.Range) -> list[types.CodeAction]:
    found = view.overlapping(place.start.line + 1, place.end.line + 1)
    if not found:
        return []
    result = []
    for answer in await server.fixes(view.document, found):
        edit = server.edit(answer.edits, answer.texts)
        if edit is None:
            continue
        lines = Lines(view.text, server.encoding)
        others = len(answer.edits) - (answer.finding.at.path in answer.edits)
        where = f" (also in {others} other file{'s' if others > 1 else ''})" if others else ""
        unsafe = "" if answer.safe else " (unsafe: may change what the program does)"
        diagnostic = convert.diagnostic(view.in_editor(answer.finding), lines, server.location)
        result.append(
            types.CodeAction(
                title=f"{answer.title}{where}{unsafe}",
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[diagnostic],
                edit=edit,
                is_preferred=answer.safe,
            )
        )
    return result


def hover(server: Server) -> None:
    """Register hover: the page of a rule for a code in a comment or a finding at the place."""

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def show_page(params: types.HoverParams) -> types.Hover | None:
        view = server.view(params.text_document.uri)
        if view is None:
            return None
        lines, at = Lines(view.text, server.encoding), params.position
        column = lines.offset(at.line, at.character) - lines.offset(at.line, 0)
        line = lines.line(at.line)
        for match in _WORD.finditer(line):
            if match.start() <= column <= match.end() and "#" in line[: match.start()]:
                rule = rule_by_code(match.group())
                if rule is not None:
                    return _markdown(convert.page(rule))
        parts = []
        place = (at.line + 1, column + 1)
        for one, _ in view.findings:
            if (one.at.line, one.at.column) <= place <= (one.at.end_line, one.at.end_column):
                help = f"\n\n**Help:** {one.finding.help}" if one.finding.help else ""
                parts.append(convert.short_page(one.finding.rule) + help)
        return _markdown("\n\n---\n\n".join(parts)) if parts else None


def _markdown(text: str) -> types.Hover:
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text))

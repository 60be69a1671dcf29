"""Set options in calls of FSDP1's constructor."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import argument
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import Event, GuardKind, Wrapped


def set_option(rewrite: Rewrite, source: Source, call: cst.Call, name: str, text: str) -> bool:
    """Replace a keyword argument of a call, or add it after the last argument.

    Returns:
        Whether it was possible.
    """
    if not call.args or any(arg.star for arg in call.args):
        return False
    given = argument(call, len(call.args), name)
    if given is not None:
        rewrite.replace(source, given.value, text)
        return True
    if any(arg.keyword is None for arg in call.args[1:]):
        return False
    last = call.args[-1]
    rewrite.insert(source, source.span(last.value)[1], _separator(source, call) + f"{name}={text}")
    return True


def _separator(source: Source, call: cst.Call) -> str:
    """A comma, with the line break between the arguments if each has its own line."""
    start, _ = source.span(call.args[-1])
    line = source.text[source.line_start(start) : start]
    own_line = len(call.args) > 1 and not line.strip()
    return f",\n{line}" if own_line else ", "


def rely_on_wrapping(rewrite: Rewrite, events: Iterable[Event]) -> None:
    """Declare that a fix is valid only while these wrappings stay, so not after a migration."""
    for event in events:
        if isinstance(event, Wrapped) and isinstance(event.site, NodeSite):
            rewrite.depends_on(event.site.source, event.site.node)


def wraps_whenever(event: Event, wrappings: Iterable[Event]) -> bool:
    """Whether the settings that lead to an event also lead to these wrappings of its model.

    With other settings, the model may be wrapped by DDP or by nothing. The search through the
    settings of a program is bounded, so that no trace may show it.
    """
    given = {guard for guard in event.guards if guard.kind is GuardKind.CONFIG}
    return all(
        guard in given
        for wrapping in wrappings
        if isinstance(wrapping, Wrapped)
        for guard in wrapping.guards
        if guard.kind is GuardKind.CONFIG
    )


def forget_name(rewrite: Rewrite, source: Source, node: object) -> None:
    """Declare that the name at the start of a dotted expression may have lost its last use."""
    current = node
    while isinstance(current, cst.Attribute):
        current = current.value
    if isinstance(current, cst.Name):
        rewrite.remove_import_if_unused(source, current.value)

"""Options of FSDP1's constructor, set in its call."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import argument
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import Event, Wrapped


def set_option(rewrite: Rewrite, source: Source, call: cst.Call, name: str, text: str) -> bool:
    """Give a call the keyword argument, in place of the one that it has or after the last one.

    Returns whether it could be done.
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
    """A comma, and the line break that stands between the arguments where each has its own line."""
    start, _ = source.span(call.args[-1])
    line = source.text[source.line_start(start) : start]
    own_line = len(call.args) > 1 and not line.strip()
    return f",\n{line}" if own_line else ", "


def rely_on_wrapping(rewrite: Rewrite, events: Iterable[Event]) -> None:
    """Say that a fix is right only as long as these wrappings stay: not after a migration."""
    for event in events:
        if isinstance(event, Wrapped) and isinstance(event.site, NodeSite):
            rewrite.depends_on(event.site.source, event.site.node)


def forget_name(rewrite: Rewrite, source: Source, node: object) -> None:
    """The name at the beginning of a dotted expression may have lost its last use."""
    current = node
    while isinstance(current, cst.Attribute):
        current = current.value
    if isinstance(current, cst.Name):
        rewrite.remove_import_if_unused(source, current.value)

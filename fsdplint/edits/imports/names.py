"""Add and remove the names of one import statement, in the style of the statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import libcst as cst

from fsdplint.diagnostics.finding import Edit
from fsdplint.source.source import Source
from fsdplint.syntax import layout

HEAD = re.compile(r"[ \t]*,?(?:[ \t]*#[^\r\n]*)?")


@dataclass
class Part:
    """One name with the text around it.

    before: the whitespace and comments between the previous name and this one.
    after: its comma and its trailing comment.
    """

    name: str  # the sort key
    text: str
    before: str
    after: str


def by_kind(name: str) -> tuple[int, str]:
    """The sort key of isort and ruff: constants, then classes, then other names."""
    if name.isupper() and len(name) > 1:
        return 0, name
    return (1 if name[:1].isupper() else 2), name


ORDERS: tuple[Callable[[str], object], ...] = (by_kind, str, str.lower)


def line_limit(source: Source) -> int:
    """The line limit of a file: 88 columns, or up to 100 if the file has longer lines."""
    longest = max((len(line) for line in layout.NEWLINE.split(source.text)), default=0)
    return 100 if longest > 88 else 88


def edit_names(
    source: Source,
    statement: cst.Import | cst.ImportFrom,
    removed: Sequence[cst.ImportAlias],
    added: Sequence[tuple[str, str]],
) -> Edit | None:
    """The edit that removes aliases from a statement and adds (name, text) pairs.

    At least one name must remain. None if nothing changes.
    """
    aliases = [] if isinstance(statement.names, cst.ImportStar) else list(statement.names)
    if not aliases or not (removed or added):
        return None
    parts, start, end, close = _parts(source, statement, aliases)
    old = source.text[start:end]
    several_lines = bool(layout.NEWLINE.search(old))
    trailing_comma = parts[-1].after == _comma(parts[-1].after, True)
    new = [(name, text) for name, text in added if text not in {part.text for part in parts}]
    if not removed and not new:
        return None

    order = next((x for x in ORDERS if _is_sorted([part.name for part in parts], x)), None)
    removed_names = {source.code(alias) for alias in removed}
    for name, text in sorted(new, key=lambda pair: by_kind(pair[0])):
        _insert(source, parts, name, text, order)
    parts, close = _without_names(parts, removed_names, close)
    for part in parts[:-1]:
        part.after = _comma(part.after, True)
    parts[-1].after = _comma(parts[-1].after, trailing_comma)
    if removed and len(parts) == 1 and getattr(statement, "lpar", None) is not None:
        single = _without_brackets(source, statement, parts[0], start, close)
        if single is not None:
            return single
    if new:
        fitted = _wrap_names(source, statement, parts, start, several_lines)
        if fitted is not None:
            return Edit(source.path, start, end, fitted)
    return Edit(source.path, start, end, _join(parts) + close)


def _without_brackets(
    source: Source, statement: cst.Import | cst.ImportFrom, part: Part, start: int, close: str
) -> Edit | None:
    """The edit that removes the brackets around a single remaining name, if it fits on the line."""
    if "#" in part.before + part.after + close:
        return None
    head = source.text[source.line_start(start) : start - 1].rstrip(" \t(")
    if len(head) + 1 + len(part.text) > line_limit(source):
        return None
    return Edit(source.path, start - 1, source.span(statement)[1], part.text)


def _join(parts: Sequence[Part]) -> str:
    return "".join(part.before + part.text + part.after for part in parts)


def _comma(after: str, needed: bool) -> str:
    """The text after a name, with or without a comma."""
    has = after.lstrip(" \t").startswith(",")
    if has == needed:
        return after
    return "," + after if needed else re.sub(r"^[ \t]*,", "", after)


def _parts(
    source: Source, statement: cst.Import | cst.ImportFrom, aliases: Sequence[cst.ImportAlias]
) -> tuple[list[Part], int, int, str]:
    """The names of a statement, the span of the names and their separators, and the text after
    them."""
    spans = [source.span(alias) for alias in aliases]
    parenthesis = getattr(statement, "lpar", None)
    if parenthesis is not None:
        start = source.text.index("(", _import_from(source, statement)) + 1
        end = source.span(statement)[1] - 1
    else:
        keyword = re.compile(r"import").search(source.text, _import_from(source, statement))
        start = keyword.end() if keyword else spans[0][0]
        end = source.span(statement)[1]
    parts = []
    position = start
    for number, alias in enumerate(aliases):
        head = HEAD.match(source.text, spans[number][1], end)
        stop = head.end() if head else spans[number][1]
        name = alias.evaluated_name
        before = source.text[position : spans[number][0]]
        parts.append(Part(name, source.code(alias), before, source.text[spans[number][1] : stop]))
        position = stop
    return parts, start, end, source.text[position:end]


def _import_from(source: Source, statement: cst.Import | cst.ImportFrom) -> int:
    if isinstance(statement, cst.ImportFrom) and statement.module is not None:
        return source.span(statement.module)[1]
    return source.span(statement)[0]


def _is_sorted(names: Sequence[str], order: Callable[[str], object]) -> bool:
    keys = [order(name) for name in names]
    return keys == sorted(keys)  # type: ignore[type-var]


def _insert(
    source: Source,
    parts: list[Part],
    name: str,
    text: str,
    order: Callable[[str], object] | None,
) -> None:
    place = len(parts)
    if order is not None:
        key = order(name)
        place = next((n for n, x in enumerate(parts) if order(x.name) > key), len(parts))  # type: ignore[operator]
    model = parts[min(max(place, 1), len(parts) - 1)].before  # the first one may follow "("
    if any(not layout.NEWLINE.search(x.before) for x in parts[1:]) or (
        len(parts) == 1 and not layout.NEWLINE.search(model)
    ):
        model = " "
    elif "#" in model:
        model = source.newline + re.split(r"[\r\n]", model)[-1]
    if place == 0:
        # A comment after the parenthesis stays there; a comment above the first name stays above
        # it.
        head = HEAD.match(parts[0].before)
        cut = head.end() if head and "#" in head.group() else 0
        if "#" in parts[0].before[cut:]:
            parts.insert(0, Part(name, text, parts[0].before[:cut] + model, ","))
            parts[1].before = parts[1].before[cut:]
        else:
            parts.insert(0, Part(name, text, parts[0].before, ","))
            parts[1].before = model
        return
    parts.insert(place, Part(name, text, model, ""))


def _without_names(parts: list[Part], names: set[str], close: str) -> tuple[list[Part], str]:
    """The parts without the removed names. Comments on their own lines stay."""
    result: list[Part] = []
    pending: str | None = None  # the text before a removed name
    for part in parts:
        if part.text in names:
            pending = part.before if pending is None else _merge(pending, part.before)
            continue
        if pending is not None:
            part.before = (
                pending if not result and "#" not in pending else _merge(pending, part.before)
            )
            pending = None
        result.append(part)
    if pending is not None and "#" in pending:
        close = _merge(pending, close)
    return result, close


def _merge(first: str, second: str) -> str:
    """Merge two pieces of whitespace and comments."""
    if "#" in first:
        cut = max(first.rfind("\n"), first.rfind("\r"))
        cut -= first[cut - 1 : cut + 1] == "\r\n"
        return first[:cut] + (second if layout.NEWLINE.match(second.lstrip(" \t")) else first[cut:])
    if layout.NEWLINE.search(first) and not layout.NEWLINE.search(second):
        return first
    return second


def _wrap_names(
    source: Source,
    statement: cst.Import | cst.ImportFrom,
    parts: list[Part],
    start: int,
    several_lines: bool,
) -> str | None:
    """The names of an extended statement, wrapped; None if all of its lines fit."""
    limit = line_limit(source)
    line_start = source.line_start(start)
    first = source.text[line_start:start]
    if max(len(x) for x in layout.NEWLINE.split(first + _join(parts))) <= limit:
        return None
    if several_lines:
        _wrap(parts, len(first), limit)
        return None
    single = not first[: source.span(statement)[0] - line_start].strip()
    if not single or not isinstance(statement, cst.ImportFrom):
        return None
    indent = layout.line_indent(source, start)
    unit = indent + source.tree.default_indent
    inner = "".join(f"{unit}{part.text},{source.newline}" for part in parts)
    body = f"{source.newline}{inner}{indent}"
    return body if statement.lpar is not None else f" ({body})"


def _wrap(parts: Sequence[Part], column: int, limit: int) -> None:
    """For several names on a line: break before a name that exceeds the limit."""
    breaks = [part.before for part in parts[1:] if layout.NEWLINE.search(part.before)]
    if not breaks:
        return
    model = re.sub(r"[ \t]*#[^\r\n]*", "", breaks[-1])
    for number, part in enumerate(parts):
        lines = layout.NEWLINE.split(part.before)
        column = len(lines[-1]) if len(lines) > 1 else column + len(part.before)
        if number and len(lines) == 1 and column + len(part.text) + 1 > limit:
            part.before = model
            column = len(layout.NEWLINE.split(model)[-1])
        column += len(part.text) + len(part.after)

"""Texts of which a part is unknown: `f"models.{name}"`, `"build_" + name`, `"%s_head" % name`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fsdplint.interpreter.values import Const, Template, Unknown, Value

_HOLE = re.compile(r"\{\d*\}|%s")


def template_of(parts: Iterable[str | Value]) -> Template | None:
    """The template that texts and values make together; None if it has not exactly one hole."""
    before, after = "", ""
    hole: Unknown | None = None
    for part in _flat(parts):
        if isinstance(part, str):
            before, after = (before + part, "") if hole is None else (before, after + part)
        elif isinstance(part, Unknown) and (part.origin or part.varying) and hole is None:
            hole = part
        else:
            return None
    return None if hole is None or not before + after else Template(before, hole, after)


def _flat(parts: Iterable[str | Value]) -> Iterator[str | Value]:
    """The parts, with the texts of constants and of templates among them."""
    for part in parts:
        if isinstance(part, Const) and type(part.value) in (str, int):
            yield str(part.value)
        elif isinstance(part, Unknown) and part.template is not None:
            yield from (part.template.before, part.template.hole, part.template.after)
        else:
            yield part


def fill_template(text: str, values: Iterable[Value]) -> Template | None:
    """The template that `text.format(*values)` and `text % values` make; None for other forms."""
    left = list(values)
    holes = list(_HOLE.finditer(text))
    if len(holes) != len(left) or any(mark in _HOLE.sub("", text) for mark in "{}%"):
        return None
    parts: list[str | Value] = []
    end = 0
    for hole, value in zip(holes, left, strict=True):
        parts += [text[end : hole.start()], value]
        end = hole.end()
    return template_of([*parts, text[end:]])

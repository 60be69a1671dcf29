"""Changes to a dict display in a program, key by key."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.source.source import Source


def keys_of(node: cst.Dict) -> dict[str, cst.DictElement] | None:
    """The elements by their keys, where all of those are plain strings, each once."""
    found: dict[str, cst.DictElement] = {}
    for element in node.elements:
        if not isinstance(element, cst.DictElement) or not isinstance(
            element.key, cst.SimpleString
        ):
            return None
        key = element.key.evaluated_value
        if not isinstance(key, str) or key in found:
            return None
        found[key] = element
    return found


def change(
    rewrite: Rewrite,
    source: Source,
    node: cst.Dict,
    dropped: Collection[str],
    values: Mapping[str, object],
) -> bool:
    """Drop keys, and give keys values, new ones in front; False where that can't be done."""
    elements = keys_of(node)
    if elements is None:
        return False
    quote = "'" if any(source.code(e.key).startswith("'") for e in elements.values()) else '"'
    pairs = [f"{quote}{key}{quote}: {values[key]!r}" for key in values if key not in elements]
    if not elements:
        rewrite.replace(source, node, "{" + ", ".join(pairs) + "}")
        return True
    spans = [source.span(element) for element in elements.values()]
    if all(not source.text[source.line_start(start) : start].strip() for start, _ in spans):
        return _lines(rewrite, source, elements, pairs, dropped, values)
    start, end = spans[0][0], spans[-1][1]
    if "#" in source.text[start:end]:
        return False
    kept = [
        f"{source.code(element.key)}: {values[key]!r}" if key in values else source.code(element)
        for key, element in elements.items()
        if key not in dropped
    ]
    rewrite.replace_span(source, start, end, ", ".join([*pairs, *kept]))
    return True


def _lines(
    rewrite: Rewrite,
    source: Source,
    elements: Mapping[str, cst.DictElement],
    pairs: list[str],
    dropped: Collection[str],
    values: Mapping[str, object],
) -> bool:
    """The same where each key has its own line. New keys take the place of the first that goes."""
    for key, element in elements.items():
        first, last = source.span(element)
        if key in values:
            rewrite.replace(source, element.value, repr(values[key]))
        if key not in dropped:
            continue
        end = source.text.find("\n", last)
        if end < 0 or source.text[last:end].partition("#")[0].strip(" \t\r,"):
            return False
        start = source.line_start(first)
        rewrite.replace_span(source, start, end + 1, _text(source.text[start:first], pairs))
        pairs = []
    if pairs:
        first = source.span(next(iter(elements.values())))[0]
        start = source.line_start(first)
        rewrite.insert(source, start, _text(source.text[start:first], pairs))
    return True


def _text(indent: str, pairs: list[str]) -> str:
    return "".join(f"{indent}{pair},\n" for pair in pairs)

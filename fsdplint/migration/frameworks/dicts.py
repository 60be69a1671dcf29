"""Changes the keys of a dict display in a program."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.source.source import Source


def keys_of(node: cst.Dict) -> dict[str, cst.DictElement] | None:
    """The elements by their keys; None if a key is not a string literal or is repeated."""
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
    removed_keys: Collection[str],
    values: Mapping[str, object],
) -> bool:
    """Remove keys and set values, with new keys first; returns False if this is impossible."""
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
        return _change_lines(rewrite, source, elements, pairs, removed_keys, values)
    start, end = spans[0][0], spans[-1][1]
    if "#" in source.text[start:end]:
        return False
    kept = [
        f"{source.code(element.key)}: {values[key]!r}" if key in values else source.code(element)
        for key, element in elements.items()
        if key not in removed_keys
    ]
    rewrite.replace_span(source, start, end, ", ".join([*pairs, *kept]))
    return True


def _change_lines(
    rewrite: Rewrite,
    source: Source,
    elements: Mapping[str, cst.DictElement],
    pairs: list[str],
    removed_keys: Collection[str],
    values: Mapping[str, object],
) -> bool:
    """Change a display with one key a line; new keys replace the first removed one."""
    for key, element in elements.items():
        first, last = source.span(element)
        if key in values:
            rewrite.replace(source, element.value, repr(values[key]))
        if key not in removed_keys:
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

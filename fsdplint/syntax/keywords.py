"""Search of words in the code of a node. `fsdplint.source.fsdp_words` has the words."""

from __future__ import annotations

import re
from functools import lru_cache

import libcst as cst

from fsdplint.source.positions import code_children

_TEXTS = frozenset([cst.Name, cst.SimpleString, cst.FormattedStringText])


class Words:
    """Finds nodes whose code contains a word; comments do not count.

    It searches the names and strings below a node, which is several times faster than to generate
    the code and search that.
    """

    def __init__(self, words: re.Pattern[str]) -> None:
        self._has = lru_cache(maxsize=None)(lambda text: words.search(text) is not None)
        self._known: dict[cst.CSTNode, bool] = {}

    def stand_in(self, node: cst.CSTNode) -> bool:
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = self._search(node)
        return known

    def _search(self, node: cst.CSTNode) -> bool:
        stack = [node]
        while stack:
            current = stack.pop()
            kind = type(current)
            if kind in _TEXTS:
                if self._has(current.value):  # type: ignore[attr-defined]
                    return True
            elif isinstance(current, cst.Attribute) and isinstance(current.value, cst.Name):
                if self._has(f"{current.value.value}.{current.attr.value}"):
                    return True
            else:
                stack += code_children(current)
        return False

"""The texts by which a file may read an entry of a dict."""

from __future__ import annotations

import libcst as cst

from fsdplint.source.source import Source, once


@once
def texts_that_may_read(source: Source) -> frozenset[str]:
    """The strings of a file but for those that only write an entry: `{"key": x}`, `d["key"] = x`.

    Any other string may get to a subscript: `d.get("key")`, `for key in ["key"]`.
    """
    written: set[cst.CSTNode] = set()
    texts = set()
    for node in source.descend(source.tree):
        if isinstance(node, cst.DictElement):
            written.add(node.key)
        elif isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Subscript):
            items = [one.slice for one in node.target.slice]
            written.update(one.value for one in items if isinstance(one, cst.Index))
        elif isinstance(node, cst.SimpleString) and node not in written:
            texts.add(node.evaluated_value)
    return frozenset(text for text in texts if isinstance(text, str))

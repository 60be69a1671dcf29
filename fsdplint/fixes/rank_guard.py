"""Put a statement under a test for rank 0."""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import library_name, substitute
from fsdplint.source.source import Source
from fsdplint.syntax import layout
from fsdplint.syntax.enclosing import Function, ancestors


def rank0_test(rewrite: Rewrite, source: Source, at: cst.CSTNode) -> str:
    """The text of `dist.get_rank() == 0` in this file."""
    return f"{library_name(rewrite, source, 'torch.distributed.get_rank', at)}() == 0"


def on_rank0(
    rewrite: Rewrite,
    source: Source,
    node: cst.CSTNode,
    texts: dict[cst.CSTNode, str] | None = None,
) -> bool:
    """Put the statement that holds a node under a test for rank 0.

    A `with` that opens the file for it (`with open(path, "wb") as f: torch.save(state, f)`) moves
    under the test too.

    texts: replacements for some nodes in the statement.

    Returns:
        Whether it was done: not for a statement whose value is used later.
    """
    statement = guardable(source, node)
    if statement is None:
        return False
    if layout.string_lines(source, statement):
        return False
    lines = statement_lines(source, statement, substitute(source, statement, texts or {}))
    test = rank0_test(rewrite, source, node)
    rewrite.replace_statement(source, statement, [f"if {test}:", *("\t" + x for x in lines)])
    return True


def guardable(source: Source, node: cst.CSTNode) -> cst.CSTNode | None:
    """The statement that `on_rank0` would put under the test, if possible."""
    statement = layout.statement_of(source, node)
    for parent in ancestors(source, node):
        if isinstance(parent, cst.With) and _opens(parent):
            statement = parent
        elif isinstance(parent, Function | cst.For | cst.While):
            break
    return statement if isinstance(statement, cst.Expr | cst.With) else None


def _opens(block: cst.With) -> bool:
    return any(
        isinstance(item.item, cst.Call)
        and isinstance(item.item.func, cst.Name | cst.Attribute)
        and (item.item.func.value if isinstance(item.item.func, cst.Name)
             else item.item.func.attr.value) == "open"
        for item in block.items
    )  # fmt: skip


def statement_lines(source: Source, statement: cst.CSTNode, text: str) -> list[str]:
    """The lines of a statement's text without their common indentation."""
    indent = layout.line_indent(source, source.span(statement)[0])
    first, *others = layout.NEWLINE.split(text)
    return [first, *(line.removeprefix(indent) for line in others)]

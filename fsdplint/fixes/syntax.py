"""Queries about syntax trees that the fixes share."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from fsdplint.diagnostics.finding import Safety
from fsdplint.edits.imports.names import line_limit
from fsdplint.edits.rewrite import Rewrite
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax import layout
from fsdplint.syntax.dotted import names_in_scope
from fsdplint.syntax.enclosing import ancestors
from fsdplint.trace import Site


def call_at(site: Site) -> tuple[Source, cst.Call] | None:
    """The source and the call of a site, if it is a call."""
    if isinstance(site, NodeSite) and isinstance(site.node, cst.Call):
        return site.source, site.node
    return None


def receiver(source: Source, call: cst.Call) -> str | None:
    """The text of `model` in `model.method(...)`; None for any other call."""
    return source.code(call.func.value) if isinstance(call.func, cst.Attribute) else None


def is_within(source: Source, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
    """Whether a node is `outer` or inside it."""
    return node is outer or any(parent is outer for parent in ancestors(source, node))


def argument(call: cst.Call, position: int, keyword: str) -> cst.Arg | None:
    """An argument by its name or, if it is positional, by its position."""
    for number, arg in enumerate(call.args):
        if arg.star:
            return None
        if arg.keyword is None and number == position:
            return arg
        if arg.keyword is not None and arg.keyword.value == keyword:
            return arg
    return None


def names(node: cst.CSTNode) -> set[str]:
    """All names in a node, without those of attributes and keywords."""
    result: set[str] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, cst.Name):
            result.add(current.value)
        elif isinstance(current, cst.Attribute | cst.Arg):
            stack.append(current.value)
        else:
            stack.extend(current.children)
    return result


def uses(scope: cst.CSTNode, name: str) -> list[cst.Name]:
    """The occurrences of a name in a scope (not as an attribute or keyword)."""
    result: list[cst.Name] = []
    stack = [scope]
    while stack:
        current = stack.pop()
        if isinstance(current, cst.Name):
            if current.value == name:
                result.append(current)
        elif isinstance(current, cst.Attribute | cst.Arg):
            stack.append(current.value)
        else:
            stack.extend(current.children)
    return result


def free_name(source: Source, node: cst.CSTNode, wanted: str) -> str:
    """`wanted`, or a similar name that no code around the node uses."""
    used_names = names_in_scope(source, node)
    name, number = wanted, 2
    while name in used_names:
        name, number = f"{wanted}{number}", number + 1
    return name


def substitute(source: Source, node: cst.CSTNode, texts: Mapping[cst.CSTNode, str]) -> str:
    """The text of a node, with replacements for some of the nodes inside it."""
    start, end = source.span(node)
    text = source.text[start:end]
    inside = [(source.span(part), new) for part, new in texts.items()]
    for (first, last), new in sorted(inside, reverse=True):
        if start <= first and last <= end:
            text = text[: first - start] + new + text[last - start :]
    return text


def library_name(rewrite: Rewrite, source: Source, name: str, at: cst.CSTNode) -> str:
    """How to refer to a library function such as "torch.nn.utils.clip_grad_norm_".

    An existing import of the function or of a package around it (`nn`, `torch`) is used if there is
    one. `import torch` loads the torch packages named here.
    """
    module, _, function = name.rpartition(".")
    trial = Rewrite()
    text = trial.need_import(source, module, function, at=at)
    if not trial.fix("", Safety.SAFE).imports:
        return text
    parts = name.split(".")
    lengths = [len(parts) - 1, *range(1, len(parts) - 1)]
    for length in lengths:
        trial = Rewrite()
        text = trial.need_import(source, ".".join(parts[:length]), at=at)
        if not trial.fix("", Safety.SAFE).imports:
            return ".".join([text, *parts[length:]])
    return rewrite.need_import(source, module, function, at=at)


def call_lines(source: Source, at: cst.CSTNode, head: str, arguments: list[str]) -> list[str]:
    """The lines of a call for `Rewrite.insert_before`: one line, or several if one is too long.

    at: the statement that the call goes before.
    head: the text before the parenthesis, e.g. "state = get_model_state_dict".
    """
    text = f"{head}({', '.join(arguments)})"
    indent, width = indent_of(source, at), line_limit(source)
    if len(text) + indent <= width:
        return [text]
    inner = ", ".join(arguments)
    if len(inner) + indent + len(source.tree.default_indent) <= width:
        return [f"{head}(", f"\t{inner}", ")"]
    return [f"{head}(", *(f"\t{text}," for text in arguments), ")"]


def call_in_place(source: Source, node: cst.CSTNode, head: str, arguments: list[str]) -> str:
    """The text of a call that replaces a node."""
    start, end = source.span(node)
    text = f"{head}({', '.join(arguments)})"
    width = line_limit(source)
    before = start - source.line_start(start)
    after = layout.line_end(source, end)[0] - end
    if "\n" not in text and before + len(text) + after <= width:
        return text
    outer = layout.line_indent(source, start)
    inner = outer + source.tree.default_indent
    joined = ", ".join(arguments)
    if "\n" not in joined and len(inner) + len(joined) <= width:
        return f"{head}(\n{inner}{joined}\n{outer})"
    return f"{head}(\n" + "".join(f"{inner}{arg},\n" for arg in arguments) + f"{outer})"


def indent_of(source: Source, node: cst.CSTNode) -> int:
    """The columns that the line of a node is indented by."""
    return len(layout.line_indent(source, source.span(node)[0]).expandtabs(8))

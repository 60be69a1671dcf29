"""Arguments of calls: by parameter name, and as spans to delete."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.source.source import Source
from fsdplint.syntax.layout import line_end


def arguments(
    call: cst.Call, parameters: Sequence[str]
) -> tuple[dict[str, cst.Arg], list[cst.Arg]]:
    """The arguments by parameter name, and those without a certain parameter (`*args`,
    `**kwargs`)."""
    by_name: dict[str, cst.Arg] = {}
    rest: list[cst.Arg] = []
    position = 0
    for arg in call.args:
        if arg.star:
            rest.append(arg)
        elif arg.keyword is not None:
            by_name[arg.keyword.value] = arg
        elif position < len(parameters):
            by_name[parameters[position]] = arg
            position += 1
        else:
            rest.append(arg)
    return by_name, rest


def without(source: Source, call: cst.Call, removed: Sequence[cst.Arg]) -> list[tuple[int, int]]:
    """The spans to delete to remove some arguments of a call, with their commas.

    An argument on its own lines is removed with these lines, its comment and the comments above it.
    """
    args = list(call.args)
    spans: list[tuple[int, int]] = []
    last_kept: cst.Arg | None = None
    for number, arg in enumerate(args):
        if arg not in removed:
            last_kept = arg
            continue
        following = args[number + 1] if number + 1 < len(args) else None
        lines = _own_lines(source, arg)
        if lines is not None:
            spans.append(lines)
        elif following is not None:
            spans.append((source.span(arg)[0], source.span(following)[0]))
        elif last_kept is not None:
            # Delete everything after the last remaining argument except its trailing comma.
            spans = [s for s in spans if s[1] <= source.span(last_kept)[0]]
            spans.append((value_end(source, last_kept), value_end(source, arg)))
        else:
            first = args[0]
            spans = [(source.span(first)[0], _behind_comma(source, arg))]
    return spans


def _own_lines(source: Source, arg: cst.Arg) -> tuple[int, int] | None:
    """The lines of an argument that shares them only with a comment."""
    start = source.span(arg)[0]
    first = source.line_start(start)
    if source.text[first:start].strip():
        return None
    end, after = line_end(source, _behind_comma(source, arg))
    trailing = source.text[_behind_comma(source, arg) : end].strip()
    if trailing and not trailing.startswith("#"):
        return None
    while first > 0:
        above = source.line_start(first - 1)
        if not source.text[above:first].strip().startswith("#"):
            break
        first = above
    return first, after


def value_end(source: Source, arg: cst.Arg) -> int:
    """The end of an argument's value, after its parentheses and before its comma."""
    end = source.span(arg)[1]
    if isinstance(arg.comma, cst.Comma):
        end = source.span(arg.comma)[0]
        while end > 0 and source.text[end - 1] in " \t":
            end -= 1
    return end


def _behind_comma(source: Source, arg: cst.Arg) -> int:
    end = value_end(source, arg)
    rest = source.text[end:]
    stripped = rest.lstrip(" \t")
    if stripped.startswith(","):
        return end + len(rest) - len(stripped) + 1
    return end


def is_called(source: Source, node: cst.CSTNode) -> bool:
    """Whether a node is the function of a call."""
    call = source.parent(node)
    return isinstance(call, cst.Call) and call.func is node


def is_constant(node: cst.CSTNode | None, *texts: str) -> bool:
    """Whether a node is one of the names `True`, `False`, `None` in `texts`."""
    return isinstance(node, cst.Name) and node.value in texts


def chooses_none(node: cst.BaseExpression | None) -> bool:
    """Whether an expression is None, or a conditional expression that is None on one side."""
    if isinstance(node, cst.IfExp):
        return chooses_none(node.body) or chooses_none(node.orelse)
    return is_constant(node, "None")


def elements(node: cst.BaseExpression) -> list[cst.BaseExpression] | None:
    """The elements of a list, tuple or set display (or of `set([...])`), None for other
    expressions."""
    if isinstance(node, cst.Set | cst.List | cst.Tuple):
        if any(isinstance(element, cst.StarredElement) for element in node.elements):
            return None
        return [element.value for element in node.elements]
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and len(node.args) == 1:
        if node.func.value in ("set", "list", "tuple", "frozenset"):
            return elements(node.args[0].value)
    return None

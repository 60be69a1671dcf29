"""Python text in the style of a file: its quotes and its line length."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Sequence

import libcst as cst

from fsdplint.edits.quotes import quote_of
from fsdplint.source.source import Source, once
from fsdplint.syntax.layout import line_indent

WIDTH = 88


@once
def width(source: Source) -> int:
    """The line limit: 88, or up to 120 if the file's own lines are that long."""
    longest = sorted(len(line) for line in source.text.splitlines())
    usual = longest[int(len(longest) * 0.995) - 1] if longest else 0
    return max(WIDTH, min(usual, 120))


def call(
    source: Source,
    at: cst.CSTNode | str,
    head: str,
    arguments: Sequence[str],
    tail: str = "",
    depth: int = 0,
) -> str:
    """`head(arguments)tail`, split over several lines if it is too long.

    Args:
        source: the file.
        at: the node on whose line the text starts, or the indentation of that line.
        head: the text before the parenthesis, such as `x = f`.
        arguments: the texts of the arguments.
        tail: the text after the parenthesis.
        depth: levels of indentation below the line. Tabs indent the lines after the first, one a
            level (see `Rewrite`).
    """
    one = f"{head}({', '.join(arguments)}){tail}"
    indent = at if isinstance(at, str) else line_indent(source, source.span(at)[0])
    indent = indent.expandtabs(4)
    unit = len(source.tree.default_indent.expandtabs(4))
    room = width(source) - len(indent) - depth * unit
    if "\n" not in one and len(one) <= room:
        return one
    tabs = "\t" * depth
    joined = ", ".join(arguments)
    if "\n" not in one and len(joined) + unit <= room and not joined.startswith("**"):
        return f"{head}(\n{tabs}\t{joined}\n{tabs}){tail}"
    whole = room + depth * unit
    lines = [_argument_line(argument, whole, unit, depth + 1) for argument in arguments]
    body = "".join(f"{tabs}\t{line}\n" for line in lines)
    return f"{head}(\n{body}{tabs}){tail}"


def _argument_line(argument: str, room: int, unit: int, depth: int) -> str:
    """An argument on a line of its own, split inside its brackets if it is too long."""
    text = f"{argument},"
    broken = _break_line(text, room, unit, depth)
    return broken if _is_same_code(f"f({text})", f"f({broken})") else text


def in_string(source: Source, at: cst.CSTNode) -> bool:
    """Whether a node is in an f-string, which may not contain line breaks before Python 3.12."""
    node = source.parent(at)
    while node is not None and not isinstance(node, cst.BaseStatement):
        if isinstance(node, cst.FormattedString):
            return True
        node = source.parent(node)
    return False


def statement(source: Source, at: cst.CSTNode, line: str) -> str:
    """A statement before that of a node, split inside its brackets if it is too long.

    Tabs indent the lines after the first, one a level (see `Rewrite`).
    """
    indent = line_indent(source, source.span(at)[0]).expandtabs(4)
    unit = len(source.tree.default_indent.expandtabs(4))
    text = _break_line(line, width(source) - len(indent), unit, 0)
    return text if _is_same_code(text, line) else line


def _break_line(text: str, room: int, unit: int, depth: int) -> str:
    if len(text) <= room - depth * unit or "\n" in text:
        return text
    parts = _brackets(text)
    if parts is None:
        return text
    head, items, tail = parts
    tabs = "\t" * depth
    joined = ", ".join(items)
    if len(joined) <= room - (depth + 1) * unit and not head.endswith("{"):
        return f"{head}\n{tabs}\t{joined}\n{tabs}{tail}"
    lines = [_break_line(item + ",", room, unit, depth + 1) for item in items]
    return "\n".join([head, *(f"{tabs}\t{line}" for line in lines), tabs + tail])


def _brackets(text: str) -> tuple[str, list[str], str] | None:
    """The text up to the longest outermost brackets, the items inside, and the rest of the text.

    None if there are none. Brackets of comprehensions do not count.
    """
    longest: tuple[int, int, list[int]] | None = None
    depth = start = 0
    commas: list[int] = []
    single = False
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return None
    for token in tokens:
        at = token.start[1]
        if token.string in ("(", "[", "{") and token.type == tokenize.OP:
            if not depth:
                start, commas, single = at, [], False
            depth += 1
        elif token.string in (")", "]", "}") and token.type == tokenize.OP:
            depth -= 1
            if not depth and not single and (longest is None or at - start > longest[1]):
                longest = start, at - start, commas
        elif depth == 1 and token.string == ",":
            commas.append(at)
        elif depth == 1 and token.string == "for":
            single = True
    if longest is None:
        return None
    start, length, commas = longest
    ends = [start, *commas, start + length]
    items = [text[a + 1 : b].strip() for a, b in itertools.pairwise(ends)]
    return text[: start + 1], [item for item in items if item], text[start + length :]


def _is_same_code(one: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except SyntaxError:
        return False


def spread_text(text: str) -> str:
    """`**text`, with the parentheses that a conditional expression needs."""
    return f"**({text})" if " if " in text else f"**{text}"


def dict_display(
    source: Source, head: str, items: Sequence[tuple[str, str]], star: str = ""
) -> list[str]:
    """Lines of `head{"name": value, ...}`, one item a line; `star` is spread first."""
    if not items and not star:
        return [f"{head}{{}}"]
    quote = quote_of(source)
    lines = [f"{head}{{"]
    if star:
        lines.append(f"\t{spread_text(star)},")
    lines.extend(f"\t{quote}{name}{quote}: {value}," for name, value in items)
    lines.append("}")
    return lines


def on_one_line(text: str) -> str:
    """An expression's text on one line, unless a comment or a multiline string prevents that."""
    if "\n" not in text:
        return text
    if "#" in text or '"""' in text or "'''" in text:
        return text
    one = re.sub(r"\s*\r?\n\s*", " ", text)
    one = re.sub(r"([(\[{]) ", r"\1", one)
    one = re.sub(r" ([)\]}])", r"\1", one)
    return re.sub(r",([)\]}])", lambda found: _closing(one, found), one)


def _closing(text: str, found: re.Match[str]) -> str:
    """A closing bracket without the comma before it, unless that makes a tuple of one element."""
    depth = commas = 0
    for position in range(found.start() - 1, -1, -1):
        char = text[position]
        if char in ")]}":
            depth += 1
        elif char in "([{" and depth:
            depth -= 1
        elif char in "([{":
            is_tuple = char == "(" and not re.search(r"[\w)\]]$", text[:position])
            return found[0] if is_tuple and not commas else found[1]
        elif char == "," and not depth:
            commas += 1
    return found[0]


def indented(line: str) -> str:
    """A line, or several, with one more level of indentation."""
    return "\n".join("\t" + part for part in line.split("\n"))


def is_repeatable(node: cst.CSTNode) -> bool:
    """Whether evaluating an expression twice, or later, has no effect."""
    if isinstance(node, cst.Name | cst.BaseNumber | cst.SimpleString):
        return True
    return isinstance(node, cst.Attribute) and is_repeatable(node.value)


def atom(text: str) -> str:
    """A text as an operand, in parentheses if it needs them."""
    if re.fullmatch(r"[\w.]+(\([^()]*\)|\[[^\[\]]*\])*", text):
        return text
    return f"({text})"


def without_parentheses(text: str) -> str:
    """An expression's text without parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")) or "\n" in text:
        return text
    try:
        inner = ast.parse(text[1:-1], mode="eval")
    except SyntaxError:
        return text
    return text[1:-1] if ast.dump(inner) == ast.dump(ast.parse(text, mode="eval")) else text

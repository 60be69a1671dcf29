"""Changes to a program as people (and generators) could have made them: of its statements and
expressions, and of how it is written down.

A change of a few bytes hardly ever leaves a program; these mostly do.
"""

from __future__ import annotations

import ast
import random
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from layout_mutations import (
    LINES_WITH_ENDS,
    blank_lines,
    comment,
    continuation,
    cookie,
    crlf,
    docstring,
    form_feed,
    no_end,
    one_crlf,
    other_bytes,
    own_line_comment,
    parenthesised_break,
    tabs,
    trailing_space,
    wide_indent,
)
from snippets import ATOMS, EXPRESSIONS, HEADERS, LINES, NAMES

_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


@dataclass(frozen=True)
class Block:
    """A statement that has its lines for itself: lines start..end."""

    node: ast.stmt
    start: int
    end: int
    alone: bool  # whether its block has no other


class Program:
    """A text with its lines and statements."""

    def __init__(self, text: str) -> None:
        """Raises SyntaxError, ValueError or RecursionError."""
        self.text = text
        self.lines = [match.group() for match in LINES_WITH_ENDS.finditer(text)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.tree = ast.parse(text)
        self.blocks = list(self._blocks())

    def _blocks(self):  # type: ignore[no-untyped-def]
        for parent in ast.walk(self.tree):
            for name in ("body", "orelse", "finalbody"):
                body = getattr(parent, name, None)
                if not isinstance(body, list):
                    continue
                for node in body:
                    first = min([node.lineno, *(d.lineno for d in _decorators(node))]) - 1
                    last = node.end_lineno or node.lineno
                    if last > len(self.lines) or self.lines[first][: node.col_offset].strip():
                        continue
                    others = [o for o in body if o is not node]
                    if any(o.lineno <= last and (o.end_lineno or 0) > first for o in others):
                        continue
                    yield Block(node, first, last, not others)

    def indent(self, number: int) -> str:
        line = self.lines[number]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def span(self, node: ast.AST) -> tuple[int, int] | None:
        """The characters of an expression."""
        start, end = node.lineno - 1, (node.end_lineno or node.lineno) - 1  # type: ignore[attr-defined]
        if end >= len(self.lines):
            return None
        return self._at(start, node.col_offset), self._at(end, node.end_col_offset)  # type: ignore[attr-defined]

    def _at(self, line: int, column: int) -> int:
        text = self.lines[line]
        if not text.isascii():
            column = len(text.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "replace"))
        return sum(map(len, self.lines[:line])) + column


def _decorators(node: ast.AST) -> list[ast.expr]:
    return getattr(node, "decorator_list", [])


def _moved(lines: Sequence[str], old: str, new: str) -> list[str]:
    """Lines with another indentation."""
    return [
        new + line[len(old) :] if line.strip() and line.startswith(old) else line for line in lines
    ]


class Mutator:
    """Makes programs out of programs.

    seeds: programs that statements and expressions are taken from.
    """

    def __init__(self, seeds: Sequence[str]) -> None:
        self.donors = []
        for text in seeds:
            try:
                self.donors.append(Program(text))
            except (SyntaxError, ValueError):
                continue
        self._structural: list[Callable[[Program, random.Random], str]] = [
            self._delete, self._duplicate, self._swap, self._move, self._wrap, self._wrap,
            self._unwrap, self._splice, self._splice, self._insert_line, self._insert_line,
            self._replace_expression, self._replace_expression, self._wrap_expression,
            self._rename, self._rename_one, self._constant, self._argument, self._into_function,
            self._one_line, self._semicolon,
        ]  # fmt: skip
        self._noise: list[Callable[[str, random.Random], str]] = [
            tabs, crlf, one_crlf, form_feed, trailing_space, comment, comment, comment,
            own_line_comment, own_line_comment, blank_lines, continuation, cookie, no_end,
            wide_indent, docstring, parenthesised_break,
        ]  # fmt: skip

    def mutate(self, data: bytes, seed: int) -> bytes:
        """Another program; one that is no Python only now and then."""
        chance = random.Random(seed)
        bom = data.startswith(b"\xef\xbb\xbf")
        encoding = "utf-8"
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text, encoding = data.decode("latin-1"), "latin-1"
        if not text.strip():
            text = chance.choice(self.donors).text
        for _ in range(chance.choice((1, 1, 2, 3, 5))):
            text = self._step(text, chance)
        if chance.random() < 0.01:
            bom = not bom
        result = text.encode(encoding, "replace" if encoding == "latin-1" else "surrogatepass")
        if chance.random() < 0.01:
            result = other_bytes(result, chance)
        return b"\xef\xbb\xbf" + result if bom else result

    def _step(self, text: str, chance: random.Random) -> str:
        for _ in range(4):
            if chance.random() < 0.25:
                after = chance.choice(self._noise)(text, chance)
            else:
                try:
                    program = Program(text)
                except (SyntaxError, ValueError, RecursionError, MemoryError):
                    return chance.choice(self.donors).text
                if not program.blocks:
                    return chance.choice(self.donors).text
                after = chance.choice(self._structural)(program, chance)
            if after != text and (_is_python(after) or chance.random() < 0.02):
                return after
        return text

    # Statements ------------------------------------------------------------------------------

    def _delete(self, program: Program, chance: random.Random) -> str:
        block = chance.choice(program.blocks)
        stead = [program.indent(block.start) + "pass\n"] if block.alone else []
        return _spliced(program, block.start, block.end, stead)

    def _duplicate(self, program: Program, chance: random.Random) -> str:
        block = chance.choice(program.blocks)
        lines = _ended(program.lines[block.start : block.end])
        return _spliced(program, block.end, block.end, lines)

    def _swap(self, program: Program, chance: random.Random) -> str:
        block = chance.choice(program.blocks)
        after = [b for b in program.blocks if b.start >= block.end]
        after = [b for b in after if program.indent(b.start) == program.indent(block.start)]
        if not after:
            return program.text
        other = chance.choice(after[:4])
        lines = program.lines
        return "".join(
            [
                *lines[: block.start],
                *_ended(lines[other.start : other.end]),
                *lines[block.end : other.start],
                *lines[block.start : block.end],
                *lines[other.end :],
            ]
        )

    def _move(self, program: Program, chance: random.Random) -> str:
        block = chance.choice(program.blocks)
        lines = _ended(program.lines[block.start : block.end])
        return self._put(program, lines, program.indent(block.start), chance)

    def _put(self, program: Program, lines: list[str], indent: str, chance: random.Random) -> str:
        place = chance.choice(program.blocks)
        moved = _moved(lines, indent, program.indent(place.start))
        at = chance.choice((place.start, place.end))
        return _spliced(program, at, at, moved)

    def _splice(self, program: Program, chance: random.Random) -> str:
        donor = chance.choice(self.donors)
        if not donor.blocks:
            return program.text
        block = chance.choice(donor.blocks)
        if block.end - block.start > 40:
            return program.text
        lines = _ended(donor.lines[block.start : block.end])
        return self._put(program, lines, donor.indent(block.start), chance)

    def _insert_line(self, program: Program, chance: random.Random) -> str:
        lines = [line + "\n" for line in chance.choice(LINES).split("\n")]
        return self._put(program, lines, "", chance)

    def _wrap(self, program: Program, chance: random.Random) -> str:
        block = chance.choice(program.blocks)
        same = [b for b in program.blocks if program.indent(b.start) == program.indent(block.start)]
        further = [b for b in same if b.start >= block.start][: chance.choice((1, 1, 2, 4))]
        end = further[-1].end if further else block.end
        indent = program.indent(block.start)
        header = chance.choice(HEADERS)
        step = chance.choice(("    ", "    ", "  ", "\t"))
        head = [f"{indent}{line}\n" for line in header.split("\n")]
        last = head[-1]
        deeper = last[: len(last) - len(last.lstrip())] + step
        body = _moved(_ended(program.lines[block.start : end]), indent, deeper)
        tail = []
        if header == "try:":
            tail = chance.choice(
                (
                    [f"{indent}except Exception:\n", f"{indent}{step}pass\n"],
                    [f"{indent}finally:\n", f"{indent}{step}done = True\n"],
                    [f"{indent}except (A, B) as error:\n", f"{indent}{step}raise\n"],
                )
            )
        elif chance.random() < 0.15 and header.startswith(("if", "for", "while")):
            tail = [f"{indent}else:\n", f"{indent}{step}model = None\n"]
        return _spliced(program, block.start, end, [*head, *body, *tail])

    def _unwrap(self, program: Program, chance: random.Random) -> str:
        compound = [b for b in program.blocks if getattr(b.node, "body", None)]
        if not compound:
            return program.text
        block = chance.choice(compound)
        body: list[ast.stmt] = block.node.body  # type: ignore[attr-defined]
        start, end = body[0].lineno - 1, body[-1].end_lineno or 0
        if start <= block.start:
            return program.text
        inner = _moved(program.lines[start:end], program.indent(start), program.indent(block.start))
        return _spliced(program, block.start, block.end, inner)

    def _into_function(self, program: Program, chance: random.Random) -> str:
        block = chance.choice(program.blocks)
        indent = program.indent(block.start)
        names = sorted({n.id for n in ast.walk(block.node) if isinstance(n, ast.Name)})[:3]
        given = ", ".join(names) if chance.random() < 0.7 else ""
        body = _moved(_ended(program.lines[block.start : block.end]), indent, indent + "    ")
        head = f"{indent}def part({given}):\n"
        call = f"{indent}part({given})\n"
        if names and chance.random() < 0.5:
            body.append(f"{indent}    return {names[0]}\n")
            call = f"{indent}{names[0]} = part({given})\n"
        return _spliced(program, block.start, block.end, [head, *body, call])

    def _one_line(self, program: Program, chance: random.Random) -> str:
        """A suite on the line of its header."""
        found = [
            b for b in program.blocks
            if len(getattr(b.node, "body", ())) == 1 and b.end - b.start == 2
        ]  # fmt: skip
        if not found:
            return program.text
        block = chance.choice(found)
        head = program.lines[block.start].rstrip()
        line = program.lines[block.start + 1].lstrip()
        return _spliced(program, block.start, block.end, [f"{head} {line}"])

    def _semicolon(self, program: Program, chance: random.Random) -> str:
        """Two statements on a line."""
        block = chance.choice(program.blocks)
        before = program.lines[block.start].rstrip("\r\n")
        if block.end - block.start != 1 or "#" in before:
            return program.text
        line = chance.choice(LINES) if block.end >= len(program.lines) else program.lines[block.end]
        end = min(block.end + 1, len(program.lines))
        if chance.random() < 0.3:
            return _spliced(program, block.start, block.end, [before + ";\n"])
        return _spliced(program, block.start, end, [f"{before}; {line.lstrip()}"])

    # Expressions -----------------------------------------------------------------------------

    def _replace_expression(self, program: Program, chance: random.Random) -> str:
        span = _expression(program, chance)
        if span is None:
            return program.text
        if chance.random() < 0.4:
            text = chance.choice(ATOMS)
        else:
            donor = program if chance.random() < 0.5 else chance.choice(self.donors)
            other = _expression(donor, chance)
            if other is None:
                return program.text
            text = donor.text[slice(*other)]
        return program.text[: span[0]] + text + program.text[span[1] :]

    def _wrap_expression(self, program: Program, chance: random.Random) -> str:
        span = _expression(program, chance)
        if span is None:
            return program.text
        old = program.text[slice(*span)]
        new = chance.choice(EXPRESSIONS).replace("{}", old).replace("{{", "{").replace("}}", "}")
        return program.text[: span[0]] + new + program.text[span[1] :]

    def _rename(self, program: Program, chance: random.Random) -> str:
        name = _name(program.text, chance)
        new = chance.choice(NAMES) if chance.random() < 0.6 else _name(program.text, chance)
        return re.sub(rf"\b{re.escape(name)}\b", lambda match: new, program.text)

    def _rename_one(self, program: Program, chance: random.Random) -> str:
        match = chance.choice(list(_WORD.finditer(program.text)))
        new = chance.choice(NAMES) if chance.random() < 0.3 else _name(program.text, chance)
        return program.text[: match.start()] + new + program.text[match.end() :]

    def _constant(self, program: Program, chance: random.Random) -> str:
        found = [n for n in ast.walk(program.tree) if isinstance(n, ast.Constant)]
        span = program.span(chance.choice(found)) if found else None
        if span is None:
            return program.text
        return program.text[: span[0]] + chance.choice(ATOMS) + program.text[span[1] :]

    def _argument(self, program: Program, chance: random.Random) -> str:
        """A call with another argument, one less, or in another layout."""
        calls = [n for n in ast.walk(program.tree) if isinstance(n, ast.Call)]
        if not calls:
            return program.text
        call = chance.choice(calls)
        whole, function = program.span(call), program.span(call.func)
        if whole is None or function is None:
            return program.text
        spans = [program.span(a) for a in [*call.args, *(k.value for k in call.keywords)]]
        texts = [program.text[slice(*s)] for s in spans if s is not None]
        names = [None] * len(call.args) + [k.arg for k in call.keywords]
        pairs = [
            (text if name is None else f"{name}={text}")
            for name, text in zip(names, texts, strict=False)
        ]
        way = chance.random()
        if way < 0.3 and pairs:
            pairs.pop(chance.randrange(len(pairs)))
        elif way < 0.5:
            pairs.append(chance.choice(("**options", "*rest", "key=1", "use_orig_params=True")))
        elif way < 0.6:
            chance.shuffle(pairs)
        separator = chance.choice((", ", ",", ",  # why\n        ", ",\n"))
        end = chance.choice(("", ",", "\n", "  # last\n", ",\n")) if pairs else ""
        made = "(" + separator.join(pairs) + end + ")"
        return program.text[: function[1]] + made + program.text[whole[1] :]


def _expression(program: Program, chance: random.Random) -> tuple[int, int] | None:
    found = [n for n in ast.walk(program.tree) if isinstance(n, ast.expr)]
    return program.span(chance.choice(found)) if found else None


def _name(text: str, chance: random.Random) -> str:
    return chance.choice(_WORD.findall(text) or ["model"])


def _spliced(program: Program, start: int, end: int, lines: Sequence[str]) -> str:
    before = program.lines[:start]
    if before and not before[-1].endswith(("\n", "\r")):
        before = [*before[:-1], before[-1] + "\n"]
    return "".join([*before, *lines, *program.lines[end:]])


def _ended(lines: Sequence[str]) -> list[str]:
    result = list(lines)
    if result and not result[-1].endswith(("\n", "\r")):
        result[-1] += "\n"
    return result


def _is_python(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True

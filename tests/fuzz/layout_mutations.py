"""Changes to how a program is written down: line ends, blanks, comments, continuations, bytes."""

from __future__ import annotations

import random
import re

from snippets import COMMENTS

LINES_WITH_ENDS = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def _line(text: str, chance: random.Random) -> tuple[list[str], int]:
    lines = [match.group() for match in LINES_WITH_ENDS.finditer(text)] or ["\n"]
    return lines, chance.randrange(len(lines))


def tabs(text: str, chance: random.Random) -> str:
    width = chance.choice((4, 8))
    return re.sub(
        rf"^(?: {{{width}}})+", lambda m: "\t" * (len(m.group()) // width), text, flags=re.M
    )


def wide_indent(text: str, chance: random.Random) -> str:
    unit = chance.choice((" ", "  ", "   ", "        "))
    return re.sub(r"^(?:    )+", lambda m: unit * (len(m.group()) // 4), text, flags=re.M)


def crlf(text: str, chance: random.Random) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def one_crlf(text: str, chance: random.Random) -> str:
    lines, at = _line(text, chance)
    lines[at] = lines[at].rstrip("\r\n") + chance.choice(("\r\n", "\r\n", "\n", "\r"))
    return "".join(lines)


def form_feed(text: str, chance: random.Random) -> str:
    lines, at = _line(text, chance)
    if chance.random() < 0.5:
        lines[at] = "\x0c" + lines[at]
    else:
        lines.insert(at, "\x0c\n")
    return "".join(lines)


def trailing_space(text: str, chance: random.Random) -> str:
    lines, at = _line(text, chance)
    bare = lines[at].rstrip("\r\n")
    lines[at] = bare + chance.choice((" ", "   ", "\t", " \t ")) + lines[at][len(bare) :]
    return "".join(lines)


def comment(text: str, chance: random.Random) -> str:
    lines, at = _line(text, chance)
    bare = lines[at].rstrip("\r\n")
    space = chance.choice(("  ", "", " ", "\t"))
    lines[at] = bare + space + chance.choice(COMMENTS) + lines[at][len(bare) :]
    return "".join(lines)


def own_line_comment(text: str, chance: random.Random) -> str:
    lines, at = _line(text, chance)
    indent = re.match(r"[ \t]*", lines[at])
    assert indent is not None
    before = chance.choice((indent.group(), "", indent.group() + "  "))
    lines.insert(at, before + chance.choice(COMMENTS) + "\n")
    return "".join(lines)


def blank_lines(text: str, chance: random.Random) -> str:
    lines, at = _line(text, chance)
    lines.insert(at, chance.choice(("\n", "\n\n\n", "   \n", "\t\n", "\r\n")))
    return "".join(lines)


def continuation(text: str, chance: random.Random) -> str:
    places = [match.start() for match in re.finditer(r"(?<=\S) (?=\S)", text)]
    if not places:
        return text
    at = chance.choice(places)
    return text[:at] + chance.choice((" \\\n    ", "\\\n", " \\\n\t")) + text[at + 1 :]


def parenthesised_break(text: str, chance: random.Random) -> str:
    places = [match.end() for match in re.finditer(r"[(\[{,]", text)]
    if not places:
        return text
    at = chance.choice(places)
    return text[:at] + chance.choice(("\n", "  # inside\n", "\n\n", "\n#\n")) + text[at:]


def cookie(text: str, chance: random.Random) -> str:
    cookie = chance.choice(
        ("# -*- coding: latin-1 -*-", "# coding: utf-8", "# vim: set fileencoding=cp1252 :")
    )
    return f"{cookie}\n{text}"


def no_end(text: str, chance: random.Random) -> str:
    return text.rstrip("\r\n") + chance.choice(("", "  ", "  # end", "\\", "\n\n\n", "\r"))


def docstring(text: str, chance: random.Random) -> str:
    first = chance.choice(
        (
            '"""What it does."""',
            "'x'",
            '"""Two\n\n  lines."""',
            "from __future__ import annotations",
            "#!/usr/bin/env python",
        )
    )
    return f"{first}\n{text}"


def other_bytes(data: bytes, chance: random.Random) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    way = chance.randrange(3)
    if way == 0:
        return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    if way == 1:
        return data[:at] + bytes([chance.randrange(256)]) + data[at:]
    return data[:at] + data[at + chance.randrange(1, 20) :]

"""Units as a tree in a picture: as part of a page, or as SVG."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fsdplint.report.sizes import format_bytes

# The kinds of memory in the order of their parts of a bar, with their colours: distinguishable with
# colour blindness, on white and on black.
KINDS: Mapping[str, str] = {
    "parameters": "#0072b2",
    "gradients": "#d55e00",
    "optimizer state": "#009e73",
}


@dataclass
class Node:
    """A unit in the picture.

    Attributes:
        name: the path of the unit.
        label: what is said beside the name; may be empty.
        details: what is said about it, a line each.
        sizes: the bytes by what they are for, for each run. A picture of one run has one entry,
            whose name may be empty. No entry if nothing is known.
        nodes: the units inside of it.
    """

    name: str
    label: str = ""
    details: list[str] = field(default_factory=list)
    sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def largest(self) -> int:
        """The most bytes of a run in this unit or in one inside of it."""
        own = [sum(held.values()) for held in self.sizes.values()]
        return max([0, *own, *(one.largest() for one in self.nodes)])


def size_text(run: str, held: Mapping[str, int]) -> str:
    """The bytes of a run as a sentence without a full stop."""
    whole = f"{run} {format_bytes(sum(held.values()))}".strip()
    parts = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in held.items() if size)
    return f"{whole}: {parts}" if parts else whole


MADE_BY = "<desc>fsdplint</desc>"  # in every drawing


# HTML ---------------------------------------------------------------------------------------------


def as_html(nodes: Sequence[Node]) -> str:
    """Nested lists, whose lines wrap on a narrow screen; see the class `units` of `page.css`."""
    largest = max((one.largest() for one in nodes), default=0)
    return "\n".join([*(_legend() if largest else ()), *_list(nodes, largest)])


def _legend() -> Iterator[str]:
    marks = (f'<li><i style="background:{color}"></i>{kind}</li>' for kind, color in KINDS.items())
    yield f'<ul class="legend">{"".join(marks)}</ul>'


def _list(nodes: Sequence[Node], largest: int) -> Iterator[str]:
    if not nodes:
        return
    yield '<ul class="units">'
    for node in nodes:
        label = f" <span>{html.escape(node.label)}</span>" if node.label else ""
        yield f'<li><div class="unit"><p><code>{html.escape(node.name)}</code>{label}</p>'
        yield from (f'<p class="quiet">{html.escape(line)}</p>' for line in node.details)
        for run, held in node.sizes.items():
            yield f'<p class="size">{html.escape(size_text(run, held))}</p>'
            parts = (
                f'<i style="width:{100 * size / largest:.2f}%;background:{KINDS[kind]}"></i>'
                for kind, size in held.items()
                if size
            )
            yield f'<div class="bar">{"".join(parts)}</div>'
        yield "</div>"
        yield from _list(node.nodes, largest)
        yield "</li>"
    yield "</ul>"


# SVG ----------------------------------------------------------------------------------------------

# In pixels: the height of a line, the part of it above the base line, and the width of a character.
_LINE, _ASCENT, _CHARACTER = 18, 9, 7.3
_PAD, _INDENT, _GAP, _CORNER = 10, 28, 12, 6
_BAR, _BAR_GAP = 8, 2
_COLUMNS = 100  # characters in a line of a box
_SVG_STYLE = """\
text{font:12px ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',monospace;fill:#1f2328}
.name{font-weight:600}.quiet{fill:#59636e}
.box{fill:#f6f8fa;stroke:#d1d9e0}.branch{fill:none;stroke:#818b98}.paper{fill:#fff}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#9198a1}
.box{fill:#151b23;stroke:#3d444d}.paper{fill:#0d1117}}"""


@dataclass
class _Line:
    """A line of text in a box. style: its class."""

    text: str
    style: str = ""


@dataclass
class _Box:
    """The place of a unit. parent: the number of the box that it is inside of."""

    node: Node
    lines: list[_Line]
    depth: int
    top: int
    height: int
    parent: int | None


def as_svg(nodes: Sequence[Node]) -> str:
    """A drawing of its own: a box for each unit, below and to the right of the one around it."""
    boxes = _boxes(nodes)
    largest = max((one.largest() for one in nodes), default=0)
    widest = max((len(line.text) for box in boxes for line in box.lines), default=20)
    wide = round(2 * _PAD + widest * _CHARACTER)
    width = 2 * _GAP + wide + _INDENT * max((box.depth for box in boxes), default=0)
    height = max((box.top + box.height for box in boxes), default=0) + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<title>{html.escape(', '.join(one.name for one in nodes))}</title>",
        MADE_BY,
        f"<style>{_SVG_STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
    ]
    for box in boxes:
        parts += _branch(box, boxes)
        parts += _draw(box, wide, largest)
    return "\n".join([*parts, "</svg>"])


def _boxes(nodes: Sequence[Node]) -> list[_Box]:
    """The boxes from the top to the bottom."""
    found: list[_Box] = []

    def add(node: Node, depth: int, parent: int | None) -> None:
        lines = list(_lines(node))
        bars = (_BAR + _BAR_GAP) * len(node.sizes)
        height = 2 * _PAD + _LINE * len(lines) + bars - (_LINE - _ASCENT) // 2
        top = found[-1].top + found[-1].height + _GAP if found else _GAP
        found.append(_Box(node, lines, depth, top, height, parent))
        own = len(found) - 1
        for one in node.nodes:
            add(one, depth + 1, own)

    for node in nodes:
        add(node, 0, None)
    return found


def _lines(node: Node) -> Iterator[_Line]:
    yield from _wrap_lines(f"{node.name} {node.label}".strip(), "name")
    for detail in node.details:
        yield from _wrap_lines(detail, "quiet")
    for run, held in node.sizes.items():
        yield from _wrap_lines(size_text(run, held), "")


def _wrap_lines(text: str, style: str) -> Iterator[_Line]:
    lines = textwrap.wrap(text, _COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
    yield from (_Line(line, style) for line in lines)


def _branch(box: _Box, boxes: Sequence[_Box]) -> Iterator[str]:
    """The line from the box around a box to it."""
    if box.parent is None:
        return
    above = boxes[box.parent]
    x, end = _GAP + _INDENT * above.depth + _INDENT // 2, _GAP + _INDENT * box.depth
    y, middle = above.top + above.height, box.top + _PAD + _LINE // 2
    yield f'<path class="branch" d="M{x} {y}V{middle}H{end}"/>'


def _draw(box: _Box, wide: int, largest: int) -> Iterator[str]:
    x, y = _GAP + _INDENT * box.depth, box.top
    yield f'<rect class="box" x="{x}" y="{y}" width="{wide}" height="{box.height}" rx="{_CORNER}"/>'
    y += _PAD + _ASCENT
    for line in box.lines:
        style = f' class="{line.style}"' if line.style else ""
        text = html.escape(line.text)
        yield f'<text{style} x="{x + _PAD}" y="{y}" xml:space="preserve">{text}</text>'
        y += _LINE
    y -= _ASCENT
    for held in box.node.sizes.values():
        at = float(x + _PAD)
        for kind, size in held.items():
            part = (wide - 2 * _PAD) * size / largest if largest else 0.0
            if part:
                yield (
                    f'<rect x="{at:.1f}" y="{y}" width="{part:.1f}" height="{_BAR}" '
                    f'fill="{KINDS[kind]}"/>'
                )
            at += part
        y += _BAR + _BAR_GAP

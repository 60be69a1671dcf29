"""The units of programs as a picture: a page, or SVG."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping

from fsdplint.comparison.unit_report import (
    NO_CALLER,
    NOTHING,
    Layouts,
    ProgramLayouts,
    api_text,
    class_text,
    details,
    first_conditions,
    held_text,
    inner_path,
)
from fsdplint.comparison.unit_tree import Layout, Unit
from fsdplint.report import unit_picture
from fsdplint.report.unit_picture import Node
from fsdplint.report.web_page import page

TITLE = "Sharding plan"


def as_page(result: Layouts) -> Iterator[str]:
    """A self-contained page with a tree for each model of each program."""
    parts = [line for program in result.programs for line in _sections(program)]
    yield page(TITLE, "\n".join(parts or [f"<p>{NOTHING}</p>"])).rstrip()


def _sections(program: ProgramLayouts) -> Iterator[str]:
    yield f"<h2><code>{html.escape(program.entry or NO_CALLER)}</code></h2>"
    if program.held is not None:
        yield f"<p>{html.escape(_capitalize(held_text(program.held)))}.</p>"
    for layout in program.layouts:
        title = _condition(program, layout)
        if title:
            yield f"<h3>{html.escape(title)}</h3>"
        yield unit_picture.as_html(_trees(program, layout))
        yield from (f"<p>Not known: {html.escape(gap)}</p>" for gap in layout.gaps)


def as_svg(result: Layouts) -> Iterator[str]:
    """One drawing of all models, with the programs as the outermost boxes."""
    nodes = [_program_node(program) for program in result.programs]
    yield unit_picture.as_svg(nodes or [Node(NOTHING)])


def _program_node(program: ProgramLayouts) -> Node:
    lines = [] if program.held is None else [held_text(program.held)]
    node = Node(program.entry or NO_CALLER, details=lines)
    for layout in program.layouts:
        title, trees = _condition(program, layout), _trees(program, layout)
        unknown = [f"not known: {gap}" for gap in layout.gaps]
        if title:
            node.nodes.append(Node(title, details=unknown, nodes=trees))
        else:
            node.details += unknown
            node.nodes += trees
    return node


def _condition(program: ProgramLayouts, layout: Layout) -> str:
    """When the program has a layout; empty if it has no other."""
    if layout.conditions:
        return f"When {' and '.join(first_conditions(layout.conditions))}"
    return "In other configurations" if len(program.layouts) > 1 else ""


def _trees(program: ProgramLayouts, layout: Layout) -> list[Node]:
    held = {} if program.held is None else program.held.by_path(layout)
    return [_node(one, None, program.entry, held) for one in layout.models]


def _node(
    unit: Unit, above: Unit | None, entry: str | None, held: Mapping[str, dict[str, int]]
) -> Node:
    kind = class_text(unit, above)
    label = ": ".join(part for part in (kind, api_text(unit, entry)) if part)
    sizes = held.get(unit.path)
    run = "on this rank, in all" if "*" in unit.path else "on this rank"
    return Node(
        inner_path(unit, above),
        label,
        [*details(unit, above)],
        {} if sizes is None else {run: sizes},
        [_node(one, unit, entry, held) for one in unit.units],
    )


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]

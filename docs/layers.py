"""Draws the layers of the package; `UPDATE_DOCS=1 pytest tests/test_readme.py` writes it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "fsdplint"
WIDTH, ROW, LEFT = 960, 30, 150
STYLE = "font-family: system-ui, sans-serif; font-size: 14px"


def summary(layer: str) -> str:
    """The first sentence of a layer's docstring."""
    package = PACKAGE / layer / "__init__.py"
    file = package if package.exists() else PACKAGE / f"{layer}.py"
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def picture(layers: Sequence[str]) -> str:
    """An SVG with a row for each layer, the highest one first."""
    return "\n".join(_lines(layers)) + "\n"


def _lines(layers: Sequence[str]) -> Iterator[str]:
    height = ROW * len(layers) + 40
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" style="{STYLE}">'
    )
    yield f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    for number, layer in enumerate(reversed(layers)):
        top = ROW * number + 10
        shade = 97 - 1.2 * number
        yield (
            f'<rect x="30" y="{top}" width="{WIDTH - 40}" height="{ROW - 4}" rx="4" '
            f'fill="hsl(215 60% {shade:.1f}%)" stroke="#8aa4c8"/>'
        )
        yield f'<text x="42" y="{top + 18}" font-weight="bold" fill="#1f2937">{layer}</text>'
        yield f'<text x="{LEFT}" y="{top + 18}" fill="#1f2937">{escape(summary(layer))}</text>'
    bottom = ROW * len(layers)
    yield f'<path d="M 14 20 V {bottom} m -5 -8 l 5 8 l 5 -8" fill="none" stroke="#1f2937"/>'
    words = "The arrow shows the direction of imports."
    yield f'<text x="30" y="{bottom + 30}" fill="#4b5563">{words}</text>'
    yield "</svg>"

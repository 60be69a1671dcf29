"""What pages have in common: their style, and a page of its own around some HTML."""

from __future__ import annotations

import html
from pathlib import Path

from fsdplint.version import __version__


def style() -> str:
    """The style sheet of all pages."""
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def page(title: str, body: str) -> str:
    """A self-contained page: no script, and nothing from elsewhere."""
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="fsdplint">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>
{style()}</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
{body}
<p class="quiet">fsdplint {__version__}</p>
</body>
</html>
"""

"""Checks the links of the built site without a network: `python docs/links.py build/site`.

Each link within the site has to lead to a file, and to an anchor if it names one. Addresses outside
of the site are not fetched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINKS = {("a", "href"), ("link", "href"), ("img", "src"), ("script", "src")}


class Page(HTMLParser):
    """The links and the anchors of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Called by the parser."""
        for name, value in attributes:
            if value and name == "id":
                self.anchors.add(value)
            elif value and (tag, name) in LINKS:
                self.links.append(value)


def broken(site: Path) -> Iterator[str]:
    """A line for each link that leads nowhere."""
    pages = {path: Page(path) for path in sorted(site.resolve().rglob("*.html"))}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            other = pages.get(target)
            missing = other is not None and parts.fragment and parts.fragment not in other.anchors
            if not target.is_file() or missing:
                yield f"{path.relative_to(site.resolve())}: {link}"


def main() -> int:
    """Print the broken links of the site that the command line names."""
    lines = list(broken(Path(sys.argv[1])))
    print(*lines, sep="\n", end="\n" if lines else "")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())

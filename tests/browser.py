"""Pages in Chromium: what does not fit into a window, what is hard to read, and screenshots."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
LEAST_CONTRAST = 4.5  # of text, as the Web Content Accessibility Guidelines ask for
# Loads the page into frames of several widths, because the window of a browser has a least width,
# and writes what it measures into the document.
_HARNESS = """\
<!doctype html><meta charset="utf-8"><pre id="found"></pre>
<script>
function light(color) {
  const [r, g, b] = color.map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
}
function parts(color) { return color.match(/[\\d.]+/g).map(Number); }
function behind(view, element) {
  for (let one = element; one; one = one.parentElement) {
    const [r, g, b, a = 1] = parts(view.getComputedStyle(one).backgroundColor);
    if (a > 0) return [r, g, b];
  }
  return [255, 255, 255];
}
function contrast(view, element) {
  const style = view.getComputedStyle(element);
  const ink = element.namespaceURI.endsWith("svg") ? style.fill : style.color;
  if (!/^rgb/.test(ink)) return 21;
  const [a, b] = [light(parts(ink).slice(0, 3)), light(behind(view, element))];
  return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
}
function name(element) {
  const said = element.textContent.trim().replace(/\\s+/g, " ").slice(0, 60);
  return `<${element.tagName} class="${element.getAttribute("class") || ""}"> ${said}`;
}
function measure(frame) {
  const view = frame.contentWindow, page = view.document, width = frame.clientWidth;
  const cut = [], pale = [];
  for (const one of page.body.querySelectorAll("*")) {
    const place = one.getBoundingClientRect(), style = view.getComputedStyle(one);
    if (!place.width || one.tagName == "STYLE") continue;
    if (place.right > width + 1 || place.left < -1) cut.push(name(one));
    if (style.overflowX != "visible" && one.scrollWidth > one.clientWidth + 1) cut.push(name(one));
    const own = [...one.childNodes].some(x => x.nodeType == 3 && x.nodeValue.trim());
    if (own && !["STYLE", "defs"].includes(one.tagName)) {
      const value = contrast(view, one);
      if (value < LEAST) pale.push(`${value.toFixed(2)} ${name(one)}`);
    }
  }
  const root = page.documentElement;
  return {width, page_width: root.scrollWidth, height: root.scrollHeight, cut, pale,
          paper: view.getComputedStyle(page.body).backgroundColor};
}
</script>
FRAMES
<script>
window.onload = () => {
  const all = [...document.querySelectorAll("iframe")].map(measure);
  document.getElementById("found").textContent = JSON.stringify(all);
};
</script>
"""


@dataclass
class Seen:
    """A page in a frame.

    Attributes:
        width: the width of the frame.
        page_width: the width that the page needs.
        height: the height that it needs.
        cut: the elements of which a part is outside of the frame, or has to be scrolled to.
        pale: the texts with too little contrast.
        paper: the colour of the page.
    """

    width: int
    page_width: int
    height: int
    cut: list[str]
    pale: list[str]
    paper: str


def see(page: str, folder: Path, widths: tuple[int, ...], *, dark: bool = False) -> list[Seen]:
    """Open a page in frames of some widths."""
    frames = "".join(
        f'<iframe style="border:0;width:{width}px;height:600px" srcdoc="{html.escape(page)}">'
        "</iframe>"
        for width in widths
    )
    text = _HARNESS.replace("LEAST", str(LEAST_CONTRAST)).replace("FRAMES", frames)
    file = folder / f"harness-{'dark' if dark else 'light'}.html"
    file.write_text(text, encoding="utf-8")
    said = _browse(file, folder, dark, "--dump-dom", "--window-size=1700,900")
    found = re.search(r'<pre id="found">(.*?)</pre>', said, re.DOTALL)
    assert found is not None and found[1], "the page did not load"
    measured: list[dict[str, Any]] = json.loads(html.unescape(found[1]))
    return [Seen(**one) for one in measured]


def take_picture(page: Path, picture: Path, width: int, height: int, *, dark: bool = False) -> None:
    """Take a picture of a page in a window."""
    options = [f"--window-size={width},{height}", f"--screenshot={picture}"]
    _browse(page, picture.parent, dark, *options)


def _browse(page: Path, folder: Path, dark: bool, *options: str) -> str:
    assert BROWSER is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    flags += ["--proxy-server=127.0.0.1:9", f"--user-data-dir={folder / 'profile'}"]
    flags += ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run(
        [BROWSER, *flags, *options, page.as_uri()], check=True, timeout=600, capture_output=True
    )
    return done.stdout.decode("utf-8", "replace")

"""Makes the pictures of the README: `python docs/pictures.py`, with the extra `dev` and Chromium.

`finding.svg` shows the output of a check in a terminal, `plan.svg` a sharding plan, and
`proof.png` the page of a proof.
`python docs/pictures.py finding` makes only the first one.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fsdplint.registry.example_files import examples_of
from fsdplint.registry.examples import without_markers
from fsdplint.registry.rules import own_rules

FOLDER = Path(__file__).parent / "pictures"
FIXTURE = Path(__file__).parents[1] / "fixtures" / "fsdp1" / "flat_script.py"
FSDPLINT = (sys.executable, "-m", "fsdplint")
RULE = "FSDP103"
WIDTH = 100  # of the terminal, in characters
PAGE = (1180, 1000)  # of the browser's window, in pixels
COLORS = 64  # of the screenshot, which makes it a small file


def example() -> str:
    """The first example program of a rule, without the comment that marks its finding."""
    (rule,) = (rule for rule in own_rules() if rule.code == RULE)
    return without_markers(examples_of(rule).bad[0].code)


def finding() -> None:
    """Write the output of a check of an example as an SVG without fonts from the network."""
    from rich.console import Console
    from rich.text import Text

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(example(), encoding="utf-8")
        output = subprocess.run(
            [*FSDPLINT, "--no-cache", "--color", "always", "train.py"],
            cwd=folder,
            capture_output=True,
            text=True,
        ).stdout
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text("$ fsdplint train.py", style="bold"))
    console.print(Text.from_ansi(output), soft_wrap=False)
    svg = console.export_svg(title="fsdplint", unique_id="finding")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    lines = (line.rstrip() for line in svg.splitlines())
    (FOLDER / "finding.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")


def plan() -> None:
    """Write the sharding plan of a program with the bytes of each unit."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(FIXTURE, Path(folder) / "train.py")
        arguments = ["--simulate", "--world-size", "64", "--output-format", "svg"]
        drawn = subprocess.run(
            [*FSDPLINT, "plan", "train.py", *arguments],
            cwd=folder,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
    (FOLDER / "plan.svg").write_text(drawn, encoding="utf-8")


def proof() -> None:
    """Write the upper part of the page of a proof as a picture."""
    from PIL import Image

    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    with tempfile.TemporaryDirectory() as name:
        page, picture = Path(name) / "proof.html", Path(name) / "page.png"
        subprocess.run(
            [*FSDPLINT, "prove", FIXTURE.name, "--html", page], cwd=FIXTURE.parent, check=True
        )
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += [f"--user-data-dir={name}/profile", "--window-size={},{}".format(*PAGE)]
        subprocess.run(
            [browser, *options, f"--screenshot={picture}", page.as_uri()],
            check=True,
            capture_output=True,
        )
        image = Image.open(picture).convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
        image.save(FOLDER / "proof.png", optimize=True)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or ["finding", "plan", "proof"]:
        {"finding": finding, "plan": plan, "proof": proof}[name]()

"""The documentation: `sphinx-build -b dirhtml docs build/site`, with the extra `docs` installed.

Each build writes the pages of the rules, and completes pages from the tables that the code holds.
"""

import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import generate

from fsdplint import __version__
from fsdplint.report.urls import BASE

generate.write(Path(__file__).parent)

project = "fsdplint"
author = "the authors of fsdplint"
version = release = __version__
html_baseurl = BASE + "/"

extensions = ["myst_parser"]
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "furo"
html_title = "fsdplint"
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False


def complete(_app: Sphinx, page: str, text: list[str]) -> None:
    """Put the generated parts into a page."""
    text[0] = generate.completed(page, text[0])


def publish_schemas(app: Sphinx, error: Exception | None) -> None:
    """Put the JSON schemas where their `$id` says."""
    if error is None:
        source = Path(__file__).parent / "schemas"
        shutil.copytree(source, Path(app.outdir) / "schemas", dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", complete)
    app.connect("build-finished", publish_schemas)

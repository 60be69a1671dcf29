"""The documentation: `sphinx-build -b dirhtml docs build/site`, with the extra `docs` installed.

The pages of the rules, and the guide (the README), are written from where they are kept, each time.
"""

import sys
from pathlib import Path

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
exclude_patterns = ["generate.py"]
html_theme = "furo"
html_title = "fsdplint"
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False

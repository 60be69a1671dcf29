"""The console scripts of a project, in each file that may name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.source.console_scripts import console_scripts

SETUP = """\
from setuptools import setup

setup(
    name="x",
    entry_points={"console_scripts": ["train = package.run:main", "other=package.other:start"]},
)
"""


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        (
            "pyproject.toml",
            '[project.scripts]\ntrain = "package.run:main"\nagain = "package.run:main [extra]"\n',
            (("package.run", "main"),),
        ),
        (
            "pyproject.toml",
            '[tool.poetry.scripts]\ntrain = "run:main"\nold = {callable = "x:y"}\n',
            (("run", "main"),),
        ),
        (
            "setup.cfg",
            "[options.entry_points]\nconsole_scripts =\n    train = package.run:main\n",
            (("package.run", "main"),),
        ),
        ("setup.py", SETUP, (("package.run", "main"), ("package.other", "start"))),
        ("pyproject.toml", '[project]\nscripts = "x"\n', ()),
        ("pyproject.toml", "[project.scripts\n", ()),
        ("setup.cfg", "console_scripts = x:y\n", ()),
        ("setup.py", "def (:\n", ()),
        ("setup.py", 'setup(entry_points={"console_scripts": scripts})\n', ()),
        ("pyproject.toml", '[project.scripts]\ntrain = "package.run"\n', ()),
    ],
)
def test_scripts(tmp_path: Path, name: str, text: str, found: tuple[tuple[str, str], ...]) -> None:
    (tmp_path / name).write_text(text)
    assert console_scripts(str(tmp_path)) == found


def test_no_files(tmp_path: Path) -> None:
    assert console_scripts(str(tmp_path)) == ()

"""The package holds every folder of code, under the right name."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_every_folder_is_installed() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^packages = \[(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    assert block is not None
    listed = re.findall(r'"([\w.]+)"', block.group(1))
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("fsdplint", "rules")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert listed == sorted(re.sub(r"^rules\b", "fsdplint.rules", name) for name in found)
    mapped = dict(re.findall(r'^"([\w.]+)" = "([\w/]+)"$', text, re.MULTILINE))
    for name in listed:
        if name.startswith("fsdplint.rules"):
            assert mapped[name] == name.removeprefix("fsdplint.").replace(".", "/")


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="for the oldest Python that is supported")
def test_compiles_on_the_oldest_python() -> None:
    for top in ("fsdplint", "rules"):
        for path in (ROOT / top).rglob("*.py"):
            compile(path.read_text(encoding="utf-8"), str(path), "exec")

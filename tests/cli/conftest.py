"""The folder that the commands run in."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import BAD


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; the environment says nothing about colours and links."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "FORCE_HYPERLINK"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def train(folder: Path) -> Path:
    """A program with a finding, in the current folder."""
    file = folder / "train.py"
    file.write_text(BAD)
    return file

"""The files that are read to see how programs call the functions of the given ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsdplint.discovery.importers import ProjectIndex
from fsdplint.engine.examine import examine
from fsdplint.engine.workspace import Workspace

LIBRARY = """
from torch.distributed.fsdp import fully_shard

def shard(model):
    fully_shard(model)
"""
USER = "from library import shard\n"
PROGRAM = "import torch\nfrom library import shard\n\nshard(torch.nn.Linear(2, 2))\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("library", LIBRARY), ("user", USER), ("train", PROGRAM)):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def test_functions_of_files_that_are_examined_elsewhere_need_no_callers(folder: Path) -> None:
    elsewhere = {os.path.realpath(folder / "library.py")}
    workspace = Workspace([folder / "user.py"], projects=ProjectIndex(), elsewhere=elsewhere)
    assert not examine(workspace, []).importers

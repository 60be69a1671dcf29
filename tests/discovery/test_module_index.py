"""Modules that only a longer search path has are found by their path, if it is the only one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.discovery import prefilter
from fsdplint.discovery.module_index import ModuleIndex
from fsdplint.discovery.module_resolver import Modules
from fsdplint.discovery.walk import File
from fsdplint.interpreter import load
from fsdplint.trace import Sharded

LIBRARY = """\
from torch.distributed.fsdp import fully_shard


def shard(model):
    fully_shard(model)


LIMIT: int = 3
"""
PROGRAM = "import torch\n{}\nmodel = torch.nn.Linear(2, 2)\n{}(model)\n"
IMPORTS = {
    "from sharding import shard": "shard",
    "from sharding import shard as s": "s",
    "from core.sharding import shard": "shard",
    "from core import sharding": "sharding.shard",
    "import core.sharding as sharding": "sharding.shard",
}
OTHERS = {
    "an unknown name": (["core", "sharding"], "wrap"),
    "a module of Python": (["json"], "shard"),
    "a module of torch": (["torch", "other"], "shard"),
    "another package": (["util", "sharding"], "shard"),
    "only the name of a module": (["sharding"], None),
    "several modules": (["twice"], "shard"),
    "a file of a hidden folder": (["hidden"], "shard"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "setup.py").touch()
    for path in (
        *("lib/core/sharding.py", "lib/json.py", "lib/torch/other.py"),
        *("one/twice.py", "two/twice.py", ".cache/hidden.py"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(LIBRARY)
    (tmp_path / "scripts").mkdir()
    return tmp_path


@pytest.mark.parametrize("statement", IMPORTS)
def test_a_program_uses_the_module(statement: str, project: Path) -> None:
    file = project / "scripts" / "train.py"
    file.write_text(PROGRAM.format(statement, IMPORTS[statement]))
    library = project / "lib" / "core" / "sharding.py"
    found = [target.file for target in Modules().targets(str(file), file.read_bytes())]
    assert found == [str(library)]
    assert any(trace.of(Sharded) for trace in load([file]).traces)
    (group,) = prefilter.select([File(file, named=True), File(library, named=True)]).groups
    assert group == [file, library]


@pytest.mark.parametrize("module", OTHERS.values(), ids=OTHERS)
def test_other_modules_are_not_found(module: tuple[list[str], str | None], project: Path) -> None:
    index = ModuleIndex(Path.read_bytes)
    program = str(project / "scripts" / "train.py")
    assert index.find(program, ["core", "sharding"], "shard")
    assert index.find(program, ["sharding"], "LIMIT")
    assert index.find(program, *module) is None


def test_a_module_of_the_search_path_comes_first(project: Path) -> None:
    file = project / "scripts" / "train.py"
    file.write_text(PROGRAM.format("from sharding import shard", "shard"))
    (project / "scripts" / "sharding.py").write_text("def shard(model):\n    pass\n")
    assert not any(list(trace.of(Sharded)) for trace in load([file]).traces)


def test_a_folder_that_is_no_project_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sharding.py").write_text(LIBRARY)
    index = ModuleIndex(Path.read_bytes)
    assert index.find(str(tmp_path / "train.py"), ["sharding"], "shard") is None

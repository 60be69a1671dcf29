"""The files that are read to see how programs call the functions of the given ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsdplint.cli.main import main
from fsdplint.discovery.importers import ProjectIndex
from fsdplint.engine.examine import examine
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

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


WRAPPING = """
import torch
import checkpoints
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

SAVE = False


def main():
    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(0)
    model = FSDP(torch.nn.Linear(2, 2))
    if SAVE:
        checkpoints.save(model)


main()
"""
STATES = """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


def save(model):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        torch.save(model.state_dict(), "fsdp.pt")
"""


def test_files_of_fsdp1_that_no_run_imports_are_read_for_a_migration(tmp_path: Path) -> None:
    package = tmp_path / "checkpoints"
    package.mkdir()
    (package / "__init__.py").write_text("from .states import save\n")
    (package / "states.py").write_text(STATES)
    (package / "plain.py").write_text("import torch\n")
    (tmp_path / "train.py").write_text(WRAPPING)
    (tmp_path / "pyproject.toml").touch()
    workspace = Workspace([tmp_path / "train.py"], projects=ProjectIndex())
    found = examine(workspace, [rule() for rule in all_rules()])
    assert {path.name for path in found.importers} == {"__init__.py", "states.py"}
    assert not examine(workspace, []).importers


def test_only_files_that_matter_are_imported(tmp_path: Path) -> None:
    texts = {"a": "import b", "b": "import c, d", "c": "import e", "d": "", "e": "here = a = 1"}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text + "\n")
    (tmp_path / "pyproject.toml").touch()

    def names(depth: int) -> list[str]:
        index = ProjectIndex()
        found = index.imported_files([tmp_path / "a.py"], lambda data: b"here" in data, depth)
        return [path.stem for path in found]

    assert names(2) == ["b", "c", "e"]
    assert names(1) == []


SAVING = """
import torch
from torch.distributed.fsdp import fully_shard


def shard(model):
    fully_shard(model)


def save(model):
    return _write(model)


def _write(model):
    torch.save(model.state_dict(), "fsdp.pt")


def count(model):
    return sum(p.numel() for p in model.parameters())
"""
SHARDED = """
import torch
from torch.distributed.fsdp import fully_shard

model = torch.nn.Linear(2, 2)
fully_shard(model)
"""
CALLERS = {
    "by its name": "from library import save\nsave(model)\n",
    "as an attribute": "import library\nlibrary.save(model)\n",
    "through another file": "import between\nbetween.run(model)\n",
}
BETWEEN = "import library\n\ndef run(model):\n    library.save(model)\n"


@pytest.mark.parametrize("way", CALLERS)
def test_only_callers_of_unreached_functions_are_read(tmp_path: Path, way: str) -> None:
    other = "import torch\nfrom library import count\n\nprint(count(torch.nn.Linear(2, 2)))\n"
    texts = {"library": SAVING, "other": other}
    if way == "through another file":
        texts["between"] = BETWEEN
        texts["another"] = "import between\n\nprint(between.__name__)\n"
    texts["train"] = SHARDED + CALLERS[way]
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pyproject.toml").touch()
    workspace = Workspace([tmp_path / "library.py"], projects=ProjectIndex())
    found = examine(workspace, [])
    assert {path.stem for path in found.importers} == {"train", *texts} & {"train", "between"}
    assert {Path(path).stem for path in found.searched} == {"other", *texts} & {"other", "another"}
    assert all(one.gap is None for one in found.program.coverage)


ACCELERATE = "distributed_type: FSDP\nfsdp_config:\n  fsdp_use_orig_params: true\n"
LAUNCHED = """
import torch
from accelerate import Accelerator

accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(2, 2))
optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
"""


def test_a_settings_file_is_fixed_for_all_programs_that_may_be_launched_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    config = tmp_path / "configs" / "fsdp.yaml"
    config.write_text(ACCELERATE)
    (tmp_path / "pyproject.toml").touch()
    os.utime(config, (1, 1))
    arguments = ["--exit-zero", "--output-format", "concise", "configs/fsdp.yaml"]
    assert "FSDP220 [*]" in CliRunner().invoke(main, arguments).output
    (tmp_path / "train.py").write_text(LAUNCHED)
    os.utime(tmp_path / "train.py", (1, 1))
    for _ in range(2):
        output = CliRunner().invoke(main, arguments).output
        assert "FSDP220 this configuration" in output, output
        assert "Found 1 note." in output
    whole = CliRunner().invoke(main, [*arguments[:-1], "."]).output
    assert "FSDP220 this configuration" in whole

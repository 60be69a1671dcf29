"""Files of the project that are not given and import what a migration changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.migration.analysis.passed_names import passed_names
from fsdplint.migration.planner import plans_of

WRAP = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model):
    return FSDP(model)


def count(model):
    return sum(p.numel() for p in model.parameters())
"""
TRAIN = """\
import torch
import torch.nn as nn
from wrap import shard


def main():
    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl")
    model = shard(nn.Linear(4, 4))
    model.clip_grad_norm_(1.0)


if __name__ == "__main__":
    main()
"""


CLIP = """\


def clip(parameters):
    for p in parameters:
        p.grad.mul_(1 / p.grad.norm())
"""


def reasons(folder: Path, other: str, *given: str) -> list[str]:
    (folder / "wrap.py").write_text(WRAP)
    (folder / "train.py").write_text(TRAIN)
    (folder / "other.py").write_text(other)
    program = load([folder / name for name in ("train.py", "wrap.py", *given)])
    (plan,) = plans_of(program)
    return [blocker.reason for blocker in plan.blockers]


@pytest.mark.parametrize("home", ["wrap", "library"])
def test_a_function_that_its_file_lacks_gets_no_model(home: str, tmp_path: Path) -> None:
    other = (
        f"import torch.nn as nn\nfrom {home} import prepare_for_fsdp\nfrom wrap import shard\n"
        "model = shard(nn.Linear(4, 4))\nprepare_for_fsdp(model)\n"
    )
    blocked = [r for r in reasons(tmp_path, other, "other.py") if "prepare_for_fsdp" in r]
    assert bool(blocked) is (home == "library")


def test_a_norm_that_only_others_take_blocks(tmp_path: Path) -> None:
    (tmp_path / "wrap.py").write_text(WRAP + CLIP)
    (tmp_path / "train.py").write_text(TRAIN)
    for other, blocked in (("import wrap\n", False), ("from wrap import clip\n", True)):
        (tmp_path / "other.py").write_text(other)
        (plan,) = plans_of(load([tmp_path / "train.py", tmp_path / "wrap.py"]))
        assert any("`clip` is also imported" in b.reason for b in plan.blockers) is blocked


@pytest.mark.parametrize(
    "other",
    [
        "from wrap import shard\nmodel = shard(object())\nmodel.clip_grad_norm_(1.0)\n",
        "import wrap\n\nmodel = wrap.shard(object())\n",
        "from wrap import *\n\nmodel = shard(object())\n",
        "def late():\n    from wrap import (count,  # both\n        shard)\n",
    ],
)
def test_an_importer_that_is_not_given_blocks(other: str, tmp_path: Path) -> None:
    assert reasons(tmp_path, other) == [
        "`shard` is also imported by other.py: name that file as well"
    ]


@pytest.mark.parametrize(
    ("package", "other"),
    [
        ("from .wrap import *\n", "from parts import shard\n"),
        ("from .wrap import shard as cut\n", "from parts import cut\n"),
        ("from .wrap import shard as cut\n", "from parts import shard\n"),
    ],
)
def test_an_importer_of_a_package_that_passes_it_on_blocks(
    package: str, other: str, tmp_path: Path
) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "wrap.py").write_text(WRAP)
    (tmp_path / "parts" / "__init__.py").write_text(package)
    name = "cut" if "cut" in package else "shard"
    (tmp_path / "train.py").write_text(
        TRAIN.replace("from wrap import shard", f"from parts import {name} as shard")
    )
    (tmp_path / "other.py").write_text(other)
    (plan,) = plans_of(load([tmp_path / "train.py"]))
    blocked = [b.reason for b in plan.blockers if "is also imported by" in b.reason]
    assert bool(blocked) is (f"import {name}" in other)


@pytest.mark.parametrize(
    "other",
    [
        "from wrap import count\n",
        "from train import main\n\nmain()\n",
        "# from wrap import shard\n",
        "import wrapping\n",
    ],
)
def test_an_importer_of_something_else_does_not(other: str, tmp_path: Path) -> None:
    assert reasons(tmp_path, other) == []


def test_an_importer_that_is_given_does_not(tmp_path: Path) -> None:
    other = "import torch.nn as nn\nfrom wrap import shard\n\nmodel = shard(nn.Linear(4, 4))\n"
    assert reasons(tmp_path, other, "other.py") == []


def test_an_importer_in_another_folder_of_the_project_blocks(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "export.py").write_text("from wrap import shard\n")
    (reason,) = reasons(tmp_path, "")
    assert "tools/export.py" in reason


ONE = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

torch.distributed.init_process_group("gloo")
model = FSDP(torch.nn.Linear(4, 4), device_id=torch.device("cpu"))
"""
OTHER = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def scale(model):
    for p in model.parameters():
        p.grad.mul_(1 / p.grad.norm())


torch.distributed.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
scale(model)
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
"""


def test_programs_side_by_side_do_not_block_each_other(tmp_path: Path) -> None:
    for name, text in (("one.py", ONE), ("other.py", OTHER)):
        (tmp_path / name).write_text(text)
    one, other = plans_of(load([tmp_path / "one.py", tmp_path / "other.py"]))
    assert [source.path for source in one.sources] == [str(tmp_path / "one.py")]
    assert not one.blockers, [blocker.reason for blocker in one.blockers]
    assert one.notes == ()
    assert other.blockers
    assert {blocker.source.path for blocker in other.blockers} == {str(tmp_path / "other.py")}


def test_a_file_with_the_name_of_a_package_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("fsdp.py", "train.py"):
        Path(name).write_text("from torch.distributed.fsdp import ShardingStrategy\n")
    assert not passed_names(load([Path("fsdp.py"), Path("train.py")]))


@pytest.mark.parametrize("used", ["one", "other"])
def test_a_file_that_passes_names_of_two_files_on(tmp_path: Path, used: str) -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    for name in ("one", "other"):
        text = f"{head}\n\ndef wrap_{name}(model):\n    return FSDP(model)\n"
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "both.py").write_text("from one import wrap_one\nfrom other import wrap_other\n")
    (tmp_path / "train.py").write_text(
        "from both import wrap_one, wrap_other\n"
        + TRAIN.replace("from wrap import shard\n", "")
        .replace("shard(", "wrap_one(wrap_other(")
        .replace("4))", "4)))")
    )
    (tmp_path / "unread.py").write_text(f"from both import wrap_{used}\n\nwrap_{used}(None)\n")
    (tmp_path / "pyproject.toml").touch()
    (plan,) = plans_of(load([tmp_path / "train.py"]))
    places = [one.source.location(one.node) for one in plan.blockers]
    assert f"{used}.py" in {Path(place.path).name for place in places}


BY_NAME = """\
import os
import torch
import torch.nn as nn
import wrap


def main():
    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl")
    shard = getattr(wrap, os.environ["WRAP"])
    model = shard(nn.Linear(4, 4))
    model.clip_grad_norm_(1.0)


if __name__ == "__main__":
    main()
"""


def test_a_program_may_find_the_function_by_a_value(tmp_path: Path) -> None:
    (tmp_path / "wrap.py").write_text(WRAP)
    (tmp_path / "train.py").write_text(BY_NAME)
    (plan,) = plans_of(load([tmp_path / "train.py", tmp_path / "wrap.py"]))
    assert not plan.blockers


def test_a_function_that_no_program_calls_is_unsafe(tmp_path: Path) -> None:
    (tmp_path / "wrap.py").write_text(WRAP)
    (plan,) = plans_of(load([tmp_path / "wrap.py"]))
    assert not plan.blockers
    assert any("no given file calls `" in note.text for note in plan.notes if note.unsafe)


@pytest.mark.parametrize("made", ["FSDP(model)", "FSDP(model, find_unused_parameters=True)"])
def test_files_that_import_changed_names_are_read(made: str, tmp_path: Path) -> None:
    """Also where the program is first brought into a more direct form."""
    (tmp_path / "wrap.py").write_text("import functools\n" + WRAP.replace("FSDP(model)", made))
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "other.py").write_text("from wrap import shard\nprint(shard)\n")
    program = load([tmp_path / name for name in ("train.py", "wrap.py")])
    assert len(plans_of(program)) == 1
    assert program.files_to_fix == {tmp_path / "other.py"}

"""Programs that choose among more classes than are tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.diagnostics.finding import Safety
from fsdplint.interpreter import load, search
from fsdplint.migration.planner import plans_of

HEAD = """\
import argparse
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

parser = argparse.ArgumentParser()
parser.add_argument("--name")
args = parser.parse_args()
torch.distributed.init_process_group()


"""
NAMES = ("One", "Two", "Three", "Four", "Five", "Six")
CLASSES = "".join(
    f"class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    f"        self.norm = nn.BatchNorm1d(4)\n\n    def forward(self, x):\n        return self.norm(x)\n\n\n"
    for name in NAMES
)
CHOICE = f"KINDS = {{{', '.join(f'{name!r}: {name}' for name in NAMES)}}}\n"
BODY = "model = FSDP(KINDS[args.name]())\nmodel(torch.ones(2, 4)).sum().backward()\n"


@pytest.fixture(autouse=True)
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_RUNS", 2)


def test_a_migration_that_depends_on_untried_choices_is_unsafe(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + CLASSES + CHOICE + BODY)
    (plan,) = plans_of(load([path]))
    assert not plan.blockers and plan.safety is Safety.UNSAFE
    (note,) = (note for note in plan.notes if note.unsafe)
    assert note.text == "not all classes and functions that a setting may choose were tried"
    ((source, _),) = note.places
    assert source.path == str(path)


def test_other_blockers_are_named(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + CLASSES + CHOICE + BODY + "print(model._handle)\n")
    (plan,) = plans_of(load([path]))
    assert [one.code for one in plan.blockers] == ["FSDP299-handle"]


def test_a_dict_of_arguments_is_read_item_by_item(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    own = "class Settings:\n    options = {'use_orig_params': True}\n\n\nsettings = Settings()\n"
    body = BODY.replace("[args.name]()", "[args.name](), **settings.options")
    path.write_text(HEAD + CLASSES + CHOICE + own + body)
    (plan,) = plans_of(load([path]))
    assert not plan.blockers


def test_all_choices_that_are_tried_are_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_RUNS", 100)
    path = tmp_path / "train.py"
    path.write_text(HEAD + CLASSES + CHOICE + BODY)
    (plan,) = plans_of(load([path]))
    assert not plan.blockers and not any("were tried" in note.text for note in plan.notes)

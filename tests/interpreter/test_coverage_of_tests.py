"""Coverage of tests, which a test runner calls without a model."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from fsdplint.interpreter import entry_runs, load
from fsdplint.interpreter.gaps import Gap

HEAD = """\
import unittest
import pytest
import torch
from torch.distributed.fsdp import fully_shard

def keep(model):
    torch.save(model.state_dict(), "one.pt")

def shard(model):
    return fully_shard(model)

@pytest.fixture
def small():
    return torch.nn.Linear(2, 2)

@pytest.fixture
def sharded():
    return shard(torch.nn.Linear(2, 2))
"""
BODY = "model = torch.nn.Linear(2, 2)\n{}model.load_state_dict(torch.load('a.pt'))\n"
SITES = 2  # in the body


def gaps(file: Path, code: str, other: str = "") -> list[Gap | None]:
    """The gaps of the sites of some code; None for each covered one."""
    file.write_text(HEAD + code)
    if other:
        (file.parent / "conftest.py").write_text(other)
    first = HEAD.count("\n") + 1
    found = [one for one in load([file]).coverage if one.source.path == str(file)]
    return [one.gap for one in found if one.source.location(one.site.node).line >= first]


def function(head: str, before: str = "") -> str:
    body = BODY.format(before).replace("\n", "\n    ").rstrip()
    return f"{head}\n    {body}\n"


def method(head: str, name: str) -> str:
    body = BODY.format("").replace("\n", "\n        ").rstrip()
    return f"{head}\n    def {name}(self):\n        {body}\n"


TESTS = {
    "a function": function("def test_load():"),
    "a fixture": function("def test_load(small, tmp_path):"),
    "parameters": function("@pytest.mark.parametrize('size', [1, 2])\ndef test_load(size):"),
    "a method": method("class TestLoad:", "test_load"),
    "a test case": method("class Loading(unittest.TestCase):", "test_load"),
    "other functions of the file": function("def test_load():", "keep(model)\n"),
    "no state dict": "def test_read():\n    torch.load('a.pt')\n    torch.load('b.pt')\n",
}


@pytest.mark.parametrize("code", TESTS.values(), ids=TESTS)
def test_the_sites_of_a_test_without_a_sharded_model_are_covered(code: str, tmp_path: Path) -> None:
    assert gaps(tmp_path / "test_states.py", code) == [None] * SITES


SHARDING = {
    "a fixture": function("def test_load(sharded):"),
    "a name": function("def test_load():", "make = shard\n"),
}


@pytest.mark.parametrize("code", SHARDING.values(), ids=SHARDING)
def test_a_test_that_may_shard_is_not_covered_without_a_sharded_model(
    code: str, tmp_path: Path
) -> None:
    assert gaps(tmp_path / "test_states.py", code) == [Gap.UNSHARDED] * SITES


OTHERS = {
    "another file": ("states.py", function("def test_load():")),
    "another name": ("test_states.py", function("def restore():")),
    "another class": ("test_states.py", method("class Loading:", "test_load")),
}


@pytest.mark.parametrize(("name", "code"), OTHERS.values(), ids=OTHERS)
def test_a_function_that_is_no_test_needs_a_caller(name: str, code: str, tmp_path: Path) -> None:
    assert gaps(tmp_path / name, code) == [Gap.UNCALLED] * SITES


def test_a_conftest_may_give_a_sharded_model(tmp_path: Path) -> None:
    code = function("def test_load(given):")
    (tmp_path / "pyproject.toml").touch()
    folder = tmp_path / "tests"
    folder.mkdir()
    file = folder / "test_states.py"
    assert gaps(file, code, "import pytest\n") == [None] * SITES
    (tmp_path / "conftest.py").write_text(
        "from torch.distributed.fsdp import fully_shard\ndef given():\n    return fully_shard(1)\n"
    )
    assert gaps(file, code) == [Gap.UNCALLED] * SITES


def test_a_program_is_judged_by_what_its_names_lead_to(tmp_path: Path) -> None:
    """That an imported file shards elsewhere does not matter."""
    (tmp_path / "parts.py").write_text(HEAD)
    file = tmp_path / "export.py"
    for call, expected in (("keep(torch.nn.Linear(2, 2))", None), ("shard", Gap.UNSHARDED)):
        file.write_text(
            f"import torch\nfrom parts import keep, shard\n{call}\ntorch.save(1, 'a')\n"
        )
        found = [one for one in load([file]).coverage if one.source.path == str(file)]
        assert [one.gap for one in found] == [expected]


RUN = {
    "a collective": ("dist.barrier()", True),
    "a collective behind a function of another file": ("parts.wait()", True),
    "a class of a framework": ("parts.fit(FSDPStrategy())", True),
    "a process group": ("dist.init_process_group()", True),
    "a collective behind a star import": ("wait()", True),
    "sharding in a program that is not run": ("parts.count()", False),
    "none of these": ("assert model.training", False),
}
PARTS = """\
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from lightning.fabric.strategies import FSDPStrategy

def wait():
    dist.barrier()

def fit(strategy):
    return strategy

def count():
    return 3

if __name__ == "__main__":
    fully_shard(1)
"""


@pytest.mark.parametrize(("code", "runs"), RUN.values(), ids=RUN)
def test_a_test_is_run_if_its_names_lead_to_distributed_code(
    code: str, runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = set()
    make = entry_runs.EntryRuns._make
    monkeypatch.setattr(
        entry_runs.EntryRuns,
        "_make",
        lambda self, one: (made.add(self.entry.node), make(self, one)),
    )
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "stars.py").write_text("from parts import *\n")
    head = "import parts\nfrom stars import *\nimport torch.distributed as dist\nfrom lightning import FSDPStrategy\n"
    test = function("def test_load():", f"{code}\n")
    assert set(gaps(tmp_path / "test_states.py", head + test)) == {None}
    names = {one.name.value for one in made if isinstance(one, cst.FunctionDef)}
    assert ("test_load" in names) is runs

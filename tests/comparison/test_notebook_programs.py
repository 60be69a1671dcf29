"""Notebooks in `fsdplint plan` and `fsdplint validate`: places are lines of cells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from json_schemas import validate

from fsdplint.cli.main import main
from fsdplint.engine.comparing import compare_sides, side

MODEL = """import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
"""
SHARD = """model = nn.Sequential(nn.Linear(4, 4))
for block in model:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TRAIN = """%%time
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
"""


def notebook(path: Path, *cells: str) -> Path:
    data = {
        "cells": [
            {"cell_type": "markdown", "source": "# Training", "metadata": {}},
            *({"cell_type": "code", "source": one, "metadata": {}, "outputs": []} for one in cells),
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return notebook(Path("train.ipynb"), f"%matplotlib inline\n{MODEL}", SHARD, TRAIN)


def test_a_plan_names_cells(training: Path) -> None:
    result = CliRunner().invoke(main, ["plan", str(training)])
    assert result.exit_code == 0, result.output
    assert "model (Sequential): fully_shard, train.ipynb:cell 3:4" in result.output
    assert "+-- 0 (Linear): fully_shard, train.ipynb:cell 3:3" in result.output


def test_a_plan_as_data_has_the_cell_beside_the_file(training: Path) -> None:
    result = CliRunner().invoke(main, ["plan", "--output-format", "json", str(training)])
    data = json.loads(result.stdout)
    validate("plan", data)
    (program,) = data["programs"]
    assert program["entry"] == "train.ipynb"
    assert program["layouts"][0]["models"][0]["at"] == {
        "filename": "train.ipynb",
        "row": 4,
        "cell": 3,
    }


def test_a_notebook_is_compared_with_itself(training: Path) -> None:
    result = compare_sides(side(training), side(training))
    assert not result.errors
    assert {one.outcome.value for one in result.facts} == {"agrees"}
    places = {(one.before_at.path, one.before_at.line) for one in result.facts if one.before_at}
    assert ("train.ipynb:cell 3", 4) in places


def test_a_notebook_is_compared_with_a_script(training: Path) -> None:
    script = Path("train.py")
    script.write_text(MODEL + SHARD + TRAIN.replace("%%time\n", ""), encoding="utf-8")
    for one, two in ((training, script), (script, training)):
        result = compare_sides(side(one), side(two))
        assert not result.errors
        assert {fact.outcome.value for fact in result.facts} == {"agrees"}


def test_a_difference_names_its_cell(training: Path) -> None:
    other = notebook(Path("new.ipynb"), MODEL, SHARD.replace("lr=0.1", "lr=0.2"), TRAIN)
    result = CliRunner().invoke(main, ["validate", str(training), str(other)])
    assert result.exit_code == 1
    (line,) = [one for one in result.stdout.splitlines() if one.startswith("differs")]
    assert line == (
        "differs       optimizer lr: 0.1 [train.ipynb:cell 3:5] -> 0.2 [new.ipynb:cell 3:5]"
    )


def test_further_cells_and_lines_of_ipython_are_no_changed_code(training: Path) -> None:
    cells = ("!pip install torch\n%env A=1\n", MODEL, "", SHARD, TRAIN)
    result = compare_sides(side(training), side(notebook(Path("new.ipynb"), *cells)))
    assert {one.outcome.value for one in result.facts} == {"agrees"}


def test_a_notebook_that_cannot_be_read(training: Path) -> None:
    broken = notebook(Path("new.ipynb"), MODEL, "fully_shard(\n")
    for command in (["plan", str(broken)], ["validate", str(training), str(broken)]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 2
        assert "new.ipynb:cell 3" in result.output

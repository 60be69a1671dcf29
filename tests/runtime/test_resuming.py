"""`fsdplint prove --resume`: checkpoints proven by going on from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fixture_runs
import pytest
import torch
from click.testing import CliRunner, Result
from migrations import RESUMED, SABOTAGED_FIXTURES, replaced

from fsdplint.cli.main import main
from fsdplint.runtime.launch.records import RankRecord
from fsdplint.runtime.proof.checks import Side
from fsdplint.runtime.proof.resuming import optimizer_state_lost
from fsdplint.trace import Trace

BEFORE, AFTER = (texts["argparse_functions.py"] for texts in fixture_runs.texts(RESUMED))
FIRST = ("--", "--out", "out", "--stop-after", "1")
WAYS = [
    "resumed: after, from its own checkpoint",
    "resumed: after, from the checkpoint of before",
    "resumed: before, from the one of after",
]

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(BEFORE)
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prove(*args: str) -> tuple[Result, dict[str, Any]]:
    out = Path("proof.json")
    result = CliRunner().invoke(main, ["prove", "train.py", "--json", str(out), *args])
    return result, json.loads(out.read_text()) if out.exists() else {}


def test_both_go_on_from_either(folder: Path) -> None:
    result, proof = prove("--resume", "--out out --resume", *FIRST)
    assert result.exit_code == 0, result.output
    checks = [check for check in proof["checks"] if check["name"] in WAYS]
    assert [check["name"] for check in checks] == WAYS
    assert all(check["holds"] for check in checks)
    assert [check["binding"] for check in checks] == [True, True, False]
    assert checks[0]["detail"].startswith("4 optimizer steps on each of 2 ranks")
    loading = [fix for fix in proof["fixes"] if "resumed" in " ".join(fix["checks"])]
    assert {fix["verdict"] for fix in loading} == {"proven"}


def test_a_state_that_is_not_loaded_back_is_refuted(folder: Path) -> None:
    _, pairs, _ = SABOTAGED_FIXTURES["the optimizer's state not loaded back"]
    (folder / "after.py").write_text(replaced(AFTER, pairs))
    args = ("--against", "after.py", "--resume", "--out out --resume")
    result, proof = prove(*args, *FIRST)
    assert result.exit_code == 1, result.output
    failed = [c["name"] for c in proof["checks"] if c["binding"] and not c["holds"]]
    assert failed == WAYS[:2]  # and nothing else shows it
    assert proof["deterministic"] is True
    assert f"{WAYS[0]}: " in result.output.replace("\n", " ")


def test_a_program_that_goes_on_with_a_new_state_of_its_optimizer(tmp_path: Path) -> None:
    """FSDP1 has no state of an optimizer that has made no step: loading in place fills in none."""

    def side(name: str, counted: int) -> Side:
        (tmp_path / name).mkdir()
        state = {"0:weight": {"step": torch.tensor(float(counted))}}
        torch.save(state, tmp_path / name / "optimizer.pt")
        measures: list[dict[str, Any]] = [{"losses": []}] * 2
        records = [RankRecord(0, 1, {}, measures=measures)]
        return Side(records, Trace(producer="runtime"), tmp_path / name / "parameters.pt")

    left = side("before", 3)
    assert optimizer_state_lost(left, side("went on", 5)) == ""
    text = optimizer_state_lost(left, side("began anew", 2))
    assert "the state counts 2 steps" in text and "counted 3" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--resume", "--out out", *FIRST), "reads none of the files that it wrote"),
        (("--resume", "--resume", "--steps", "1", *FIRST), "perhaps --steps ends it before"),
    ],
)
def test_what_cannot_be_gone_on_from(folder: Path, args: tuple[str, ...], message: str) -> None:
    result, _ = prove(*args)
    assert result.exit_code == 2, result.output
    assert message in result.output

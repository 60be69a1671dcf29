"""The fixtures, migrated: the text that comes out, and that a second run changes nothing.

`expected` holds the migrated form of each fixture; that it trains like the fixture is shown by the tests
of the shim.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fixture_runs
import pytest

from fsdplint.engine.fix import FixResult, fix
from fsdplint.engine.migration import MigrationRun
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

RULES = [rule() for rule in all_rules()]
PROGRAMS = fixture_runs.programs()
every_program = pytest.mark.parametrize("name", list(PROGRAMS))


def migrated(name: str) -> FixResult:
    before, _ = fixture_runs.projects()
    return fix(Workspace([before / file for file in PROGRAMS[name]]), RULES)


@every_program
def test_a_fixture_is_migrated(name: str) -> None:
    """`UPDATE_EXPECTED=1` writes the texts, which are then to be read as their owner would."""
    result = migrated(name)
    before, _ = fixture_runs.projects()
    for file in PROGRAMS[name]:
        text = result.texts.get(before / file, fixture_runs.before(file))
        if os.environ.get("UPDATE_EXPECTED"):
            (fixture_runs.EXPECTED / file).parent.mkdir(parents=True, exist_ok=True)
            (fixture_runs.EXPECTED / file).write_text(text, encoding="utf-8")
        assert text == fixture_runs.after(file), str(file)
    assert {f.rule.code for f in result.applied} & {"FSDP201", "FSDP213"}
    assert not [f for f in result.remaining if f.rule.code.startswith("FSDP2")]


@every_program
def test_a_second_run_changes_nothing(name: str) -> None:
    _, after = fixture_runs.projects()
    assert fix(Workspace([after / file for file in PROGRAMS[name]]), RULES).texts == {}


def test_no_name_is_undefined_or_left_over() -> None:
    found = complaints(fixture_runs.EXPECTED), complaints(fixture_runs.FIXTURES)
    for files in PROGRAMS.values():
        for file in files:
            assert found[0].get(file, set()) <= found[1].get(file, set()), str(file)


def complaints(folder: Path) -> dict[Path, set[str]]:
    """What ruff says of names that are unused or undefined, by the file below a folder."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", "."]
    command += ["--output-format", "concise", "--no-cache"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    found: dict[Path, set[str]] = {}
    for line in run.stdout.splitlines():
        place, _, message = line.partition(": ")
        found.setdefault(Path(place.partition(":")[0]), set()).add(message)
    return found


def test_a_part_of_a_project_is_not_migrated_alone() -> None:
    """Without the file that wraps the model, or with only that one, nothing is changed."""
    package = fixture_runs.projects()[0] / "fsdp1" / "package"
    for name in ("checkpoint.py", "loop.py", "wrapping.py", "train.py"):
        assert fix(Workspace([package / name]), RULES).texts == {}


def test_a_wrapped_model_that_is_imported_is_migrated_where_it_is_used(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\n"
        "from torch import nn\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
        'model = FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"))\n'
    )
    train = tmp_path / "train.py"
    train.write_text(
        "import torch\n"
        "import torch.distributed as dist\n\n"
        'dist.init_process_group("gloo")\n'
        "import model as models\n"
        "from model import model\n\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "model(torch.randn(2, 4)).sum().backward()\n"
        "model.clip_grad_norm_(1.0)\n"
        "models.model.clip_grad_norm_(2.0)\n"
        "print(model.module.weight)\n"
        "optimizer.step()\n"
    )
    migrated = MigrationRun([train, model]).migrate(fix=True)
    assert [one.verdict for one in migrated.report.sections] == [
        "migrated whole (3 changes in 2 files)"
    ]
    after = migrated.contents[train][1].decode()
    assert "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)" in after
    assert "torch.nn.utils.clip_grad_norm_(models.model.parameters(), 2.0)" in after
    assert "print(model.weight)" in after

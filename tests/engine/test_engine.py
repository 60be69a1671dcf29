"""Findings over several traces, and fixing to a fixed point."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.registry.rules import all_rules

RULES = [rule() for rule in all_rules()]
FIXTURE = Path(__file__).parents[2] / "fixtures" / "fsdp1" / "argparse_functions.py"


def test_every_finding_that_is_fixed_is_told(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(FIXTURE.read_text())
    found = check(load([path]), RULES)
    result = fix(Workspace([path]), RULES)
    assert result.remaining == []
    places = [(f.rule.code, f.site.location().line) for f in found]
    assert [(f.rule.code, f.site.location().line) for f in result.applied] == places


def test_a_second_fix_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(FIXTURE.read_text())
    text = fix(Workspace([path]), RULES).texts[path]
    again = fix(Workspace([path], overrides={path: text}), RULES)
    assert again.texts == {}
    assert again.applied == []


def test_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(FIXTURE.read_text())
    fix(Workspace([path], unsafe=True), RULES)
    assert path.read_text() == FIXTURE.read_text()


def test_a_finding_of_all_configurations_has_none(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import argparse\n"
        "from torch import nn\n"
        "from torch.distributed.fsdp import fully_shard\n"
        "args = argparse.ArgumentParser().parse_args()\n"
        "model = nn.Linear(8, 8)\n"
        "fully_shard(model)\n"
        "if args.accumulate:\n"
        "    state = model.state_dict()\n"
        "model.no_sync()\n"
    )
    (finding,) = check(load([path]), RULES)
    assert finding.rule.code == "FSDP401"
    assert finding.configuration == ()


def test_a_finding_of_several_configurations_gives_one_as_an_example(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import argparse\n"
        "import torch\n"
        "from torch import nn\n"
        "from torch.distributed.fsdp import fully_shard\n"
        "args = argparse.ArgumentParser().parse_args()\n"
        "model = nn.Linear(8, 8)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "if args.kind == 'full' or args.kind == 'none':\n"
        "    fully_shard(model)\n"
        "model(torch.ones(8)).sum().backward()\n"
        "optimizer.step()\n"
    )
    (finding,) = check(load([path]), RULES)
    assert finding.rule.code == "FSDP103"
    assert len(finding.configuration) == 1
    assert finding.one_of_several


def test_a_defect_in_a_fix_costs_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.py"
    path.write_text(FIXTURE.read_text())
    number = len(check(load([path]), RULES))

    def broken(*_: object) -> None:
        raise ValueError("overlapping edits")

    for rule in RULES:
        monkeypatch.setattr(type(rule), "fix", broken)
    found = check(load([path]), RULES)
    assert len(found) == number
    assert all(f.fix is None and "overlapping edits" in (f.blocker or "") for f in found)

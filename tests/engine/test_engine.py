"""Findings over several traces, and fixing to a fixed point."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.registry.rules import all_rules, rule_by_code

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


def test_a_method_that_no_run_calls_is_no_configuration(tmp_path: Path) -> None:
    code = """\
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import fully_shard
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    class Trainer:
        def __init__(self, data):
            self.model = fully_shard(nn.Linear(8, 8))
            self.loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

        def train(self):
            for epoch in range(3):
                for (batch,) in self.loader:
                    self.model(batch).sum().backward()
                    self.optimizer.step()

        def load(self, path):
            self.model.load_state_dict(torch.load(path))

    if __name__ == "__main__":
        dist.init_process_group("gloo")
        Trainer(TensorDataset(torch.zeros(8, 8))).train()
    """
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(code))
    rule = rule_by_code("FSDP512")
    assert rule is not None
    assert check(load([path]), [rule()])

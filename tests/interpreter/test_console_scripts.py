"""Functions that the commands of a project call: they are programs of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings

from fsdplint.interpreter import load

RUN = """\
import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    dist.init_process_group("nccl")
    with torch.device("meta"):
        model = nn.Linear(8, 8)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    model.to_empty(device="cuda")
    train(model, optimizer, args.steps)


def train(model, optimizer, steps):
    for _ in range(steps):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("script", "number"),
    [("package.run:main", 1), ("package.other:main", 0), ("package.run:train", 0)],
)
def test_what_is_missing_in_a_script_is_missing(tmp_path: Path, script: str, number: int) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[project.scripts]\nstart = "{script}"\n')
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "run.py").write_text(RUN)
    found = load([tmp_path / "package" / "run.py"])
    assert len(findings(found, "FSDP134")) == number
    entries = {trace.entry for trace in found.traces if trace.complete}
    assert any(entries) == (script != "package.other:main")


def test_a_script_that_a_program_calls_runs_once(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\nstart = "run:main"\n')
    (tmp_path / "run.py").write_text(RUN + '\n\nif __name__ == "__main__":\n    main()\n')
    found = load([tmp_path / "run.py"])
    assert len(found.explored) == 1
    assert len(findings(found, "FSDP134")) == 1

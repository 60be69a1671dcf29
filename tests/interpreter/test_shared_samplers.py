"""FSDP512 and FSDP511 where several programs make their loaders by one function."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import HEADER, findings

from fsdplint.interpreter import load

DATA = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def loader(distributed=True):
    data = TensorDataset(torch.zeros(16, dtype=torch.long))
    sampler = DistributedSampler(data) if distributed else None
    return DataLoader(data, batch_size=2, sampler=sampler)
"""
TRAINING = """
from data import loader

dist.init_process_group("nccl")
torch.manual_seed(0)
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = loader({arguments})
for epoch in range(3):
    {each_epoch}
    for (x,) in batches:
        model(x).sum().backward()
        optimizer.step()
"""


def codes(folder: Path, code: str, **programs: str) -> list[str]:
    (folder / "pyproject.toml").touch()
    (folder / "data.py").write_text(DATA)
    paths = [folder / f"{name}.py" for name in programs]
    for path, text in zip(paths, programs.values(), strict=True):
        path.write_text(HEADER + text)
    return [one.rule.code for one in findings(load(paths), code)]


@pytest.mark.parametrize("code", ["FSDP512", "FSDP511"])
def test_another_program_contradicts_nothing(tmp_path: Path, code: str) -> None:
    arguments = "" if code == "FSDP512" else "distributed=False"
    sharded = TRAINING.format(model="fully_shard(Net())", arguments=arguments, each_epoch="pass")
    plain = TRAINING.format(
        model="nn.parallel.DistributedDataParallel(Net())",
        arguments="",
        each_epoch="batches.sampler.set_epoch(epoch)",
    )
    assert codes(tmp_path, code, sharded=sharded, plain=plain) == [code]


def test_the_program_itself_sets_the_epoch(tmp_path: Path) -> None:
    text = TRAINING.format(
        model="fully_shard(Net())",
        arguments="",
        each_epoch="batches.sampler.set_epoch(epoch)",
    )
    assert codes(tmp_path, "FSDP512", sharded=text) == []

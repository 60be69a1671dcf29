"""FSDP511 and FSDP512 in programs that can also train in another way."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--mode")
args = parser.parse_args()
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(8, 8)
{modes}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = TensorDataset(torch.ones(64, 8))
sampler = DistributedSampler(rows, shuffle={shuffle})
loader = DataLoader(rows, batch_size=4, sampler=sampler)
for epoch in range(3):
{epoch}
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""
MODES = {
    "one of two": 'if args.mode == "fsdp2":\n    fully_shard(model)\n'
    'elif args.mode == "ddp":\n    model = DistributedDataParallel(model)\nelse:\n    raise ValueError',
    "other order": 'if args.mode == "ddp":\n    model = DistributedDataParallel(model)\n'
    "else:\n    fully_shard(model)",
    "or not at all": 'if args.mode == "fsdp2":\n    fully_shard(model)',
}


def _found(folder: Path, modes: str, epoch: str = "    pass", shuffle: str = "True") -> bool:
    return _finds("FSDP512", folder, PROGRAM.format(modes=modes, shuffle=shuffle, epoch=epoch))


def _finds(code: str, folder: Path, text: str) -> bool:
    path = folder / "train.py"
    path.write_text(text)
    rule = rule_by_code(code)
    assert rule is not None
    return bool(check(load([path]), [rule()]))


@pytest.mark.parametrize("modes", MODES.values(), ids=list(MODES))
def test_the_epoch_is_set_in_no_mode(tmp_path: Path, modes: str) -> None:
    assert _found(tmp_path, modes)


@pytest.mark.parametrize("modes", MODES.values(), ids=list(MODES))
@pytest.mark.parametrize("test", ["True", 'args.mode == "fsdp2"', "args.reorder"])
def test_the_epoch_is_set_in_some_mode(tmp_path: Path, modes: str, test: str) -> None:
    assert not _found(tmp_path, modes, f"    if {test}:\n        sampler.set_epoch(epoch)")


@pytest.mark.parametrize("modes", MODES.values(), ids=list(MODES))
@pytest.mark.parametrize("shuffle", ["False", 'args.mode == "fsdp2"', "args.shuffle"])
def test_some_mode_does_not_shuffle(tmp_path: Path, modes: str, shuffle: str) -> None:
    assert not _found(tmp_path, modes, shuffle=shuffle)


SAME_DATA = PROGRAM.replace("sampler = DistributedSampler(rows, shuffle={shuffle})", "{sampler}")
MESH = """if args.mode == "hybrid":
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
else:
    mesh = init_device_mesh("cpu", (4,))
fully_shard(model, mesh=mesh)"""
SAMPLER = "DistributedSampler(rows)"


def _finds_same_data(folder: Path, modes: str, sampler: str) -> bool:
    text = SAME_DATA.format(modes=modes, sampler=f"sampler = {sampler}", epoch="")
    imported = "from torch.distributed.device_mesh import init_device_mesh\n"
    return _finds("FSDP511", folder, imported + text)


@pytest.mark.parametrize("modes", [*MODES.values(), MESH], ids=[*MODES, "hybrid"])
def test_no_mode_gives_each_rank_data_of_its_own(tmp_path: Path, modes: str) -> None:
    assert _finds_same_data(tmp_path, modes, "None")


@pytest.mark.parametrize("modes", [*MODES.values(), MESH], ids=[*MODES, "hybrid"])
@pytest.mark.parametrize(
    "sampler",
    [SAMPLER, f"{SAMPLER} if args.part else None", f'{SAMPLER} if args.mode == "fsdp2" else None'],
)
def test_some_mode_gives_each_rank_data_of_its_own(
    tmp_path: Path, modes: str, sampler: str
) -> None:
    if 'args.mode == "fsdp2"' in sampler and modes in (MODES["other order"], MESH):
        return  # a mode without sampler is sharded
    assert not _finds_same_data(tmp_path, modes, sampler)

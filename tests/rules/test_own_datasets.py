"""FSDP511 on datasets of the program: what their code reads decides whether ranks differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.diagnostics.finding import Finding
from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import argparse
import os
import random
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler, WeightedRandomSampler
from torch.utils.data import RandomSampler, SequentialSampler
from dataclasses import dataclass, field
from omegaconf import OmegaConf
from transformers import HfArgumentParser
from weights import weights

dist.init_process_group("gloo"{group})
torch.manual_seed(0)
args = argparse.ArgumentParser().parse_args()
SCALE = 2.0
SIZES = {{"length": 16}}
OFFSET = dist.get_rank() * 16


def offset():
    return OFFSET


def indirect_offset():
    return offset()


def scaled(index):
    return index * SCALE


class Settings:
    def __init__(self, length, first):
        self.length = length
        self.first = first


@dataclass
class Options:
    path: str
    length: int = field(default=16)


@dataclass
class OwnOptions:
    partition: int = 0


options, own_options = HfArgumentParser((Options, OwnOptions)).parse_args_into_dataclasses()
(moved_options,) = HfArgumentParser((Options,)).parse_args_into_dataclasses()
moved_options.length = OFFSET
loaded = OmegaConf.load("settings.yaml")
settings = Settings(16, 0)
own_settings = Settings(16, OFFSET)


def changed(sample):
    return sample + OFFSET


class Samples(Dataset):
    # No sampler is needed: the data set is small.
    def __init__(self, change=abs):
        self.change = change
        self.order = {order}

    def __len__(self):
        return 16

    def __getitem__(self, index):
        \"\"\"A sample; each process computes it again.\"\"\"
        return torch.full((8,), float({index}))


model = nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
samples = {samples}
for batch in DataLoader(samples, batch_size=4{sampler}):
    model(batch).sum().backward()
    optimizer.step()
"""


def _findings(folder: Path, **texts: str) -> list[Finding]:
    path = folder / "train.py"
    texts = {
        "index": "index",
        "order": "[]",
        "samples": "Samples()",
        "group": "",
        "sampler": "",
        **texts,
    }
    path.write_text(PROGRAM.format(**texts))
    rule = rule_by_code("FSDP511")
    assert rule is not None
    return check(load([path]), [rule()])


SAME = [
    "index",
    "index * SCALE",
    "scaled(index)",
    'index % SIZES["length"]',
    "index + args.first",
    "index % settings.length",
    "index % options.length",
    "len(options.path)",
    "index % loaded.length",
]


@pytest.mark.parametrize("index", SAME)
def test_every_rank_makes_the_same_samples(tmp_path: Path, index: str) -> None:
    assert len(_findings(tmp_path, index=index)) == 1


OTHER = [
    "index + OFFSET",
    "index + offset()",
    "index + indirect_offset()",
    "index + own_settings.first",
    'index + int(os.environ["NODE"])',
    'index + int(os.getenv("NODE"))',
    "index + torch.cuda.current_device()",
    "index + own_options.partition",
    "index + moved_options.length",
    "index + loaded.rank",
]


@pytest.mark.parametrize("index", OTHER)
def test_each_rank_may_make_its_own_samples(tmp_path: Path, index: str) -> None:
    assert not _findings(tmp_path, index=index)


@pytest.mark.parametrize(("change", "findings"), [("scaled", 1), ("changed", 0)])
def test_samples_are_changed_by_a_function(tmp_path: Path, change: str, findings: int) -> None:
    assert len(_findings(tmp_path, samples=f"Samples({change})")) == findings


@pytest.mark.parametrize(
    ("order", "findings"),
    [("torch.randperm(16)", 1), ("random.sample(range(16), 16)", 0)],
)
def test_the_seed_of_torch_sets_no_other_generator(
    tmp_path: Path, order: str, findings: int
) -> None:
    assert len(_findings(tmp_path, order=order)) == findings


@pytest.mark.parametrize(
    ("group", "findings"), [(", rank=0, world_size=1", 0), (", timeout=None", 1)]
)
def test_a_group_of_one_process(tmp_path: Path, group: str, findings: int) -> None:
    assert len(_findings(tmp_path, group=group)) == findings


SAMPLERS = {
    "sampler=SequentialSampler(samples)": 1,
    "sampler=RandomSampler(samples)": 1,
    "sampler=RandomSampler(samples, generator=torch.Generator().manual_seed(1))": 1,
    "sampler=RandomSampler(samples, generator=torch.Generator().manual_seed(OFFSET))": 0,
    "sampler=RandomSampler(samples, generator=None)": 1,
    "sampler=None if OFFSET < 0 else RandomSampler(samples)": 1,
    "sampler=DistributedSampler(samples)": 0,
    "sampler=WeightedRandomSampler(weights, 16)": 0,
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samplers_that_know_no_ranks(tmp_path: Path, sampler: str) -> None:
    assert len(_findings(tmp_path, sampler=f", {sampler}")) == SAMPLERS[sampler]


CHOICE = """
def of_name(name):
    if name == "samples":
        return Samples()
    elif name == "others":
        return Others()
    {otherwise}


class Others(Samples):
    pass


samples = of_name(args.name)
"""
OTHERWISE = {
    'raise ValueError(f"unknown name: {{name}}")': 1,
    "return __import__(name).samples()": 0,
    "return None": 0,
}


@pytest.mark.parametrize("otherwise", OTHERWISE)
def test_a_name_that_is_refused_is_no_configuration(tmp_path: Path, otherwise: str) -> None:
    choice = CHOICE.format(otherwise=otherwise.format())
    found = _findings(tmp_path, samples="None\n" + choice)
    assert len(found) == OTHERWISE[otherwise]

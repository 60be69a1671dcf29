"""FSDP511: which functions make the same batches on all ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import functools
import random
import torch
import torch.distributed as dist
import transformers
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from unknown import collate_unknown

def stack(samples):
    return torch.stack([sample[0] for sample in samples])

def scale(samples, factor):
    return factor * stack(samples)

def mask(samples):
    return stack(samples) * (random.random() > 0.5)

def part(samples):
    return stack(samples)[dist.get_rank()]

class Pad:
    def __init__(self, tokenizer, length):
        self.tokenizer, self.max_length = tokenizer, length

    def __call__(self, samples):
        return stack(samples)[:, : self.max_length]

dist.init_process_group("gloo")
torch.manual_seed(0)
tokenizer = transformers.AutoTokenizer.from_pretrained("gpt2")
model = fully_shard(nn.Linear(4, 1))
data = TensorDataset(torch.randn(16, 4))
for x in DataLoader(data, batch_size=4, collate_fn={collate}):
    model(x).mean().backward()
"""


def found(folder: Path, collate: str) -> bool:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(collate=collate))
    rule = rule_by_code("FSDP511")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    "collate",
    [
        "stack",
        "lambda samples: torch.stack([one[0] for one in samples])",
        "functools.partial(scale, factor=2)",
        "Pad(tokenizer, 128)",
        "Pad(tokenizer, 128).__call__",
        "transformers.default_data_collator",
        "transformers.DataCollatorWithPadding(tokenizer)",
    ],
)
def test_a_function_that_makes_the_same_batch_everywhere(tmp_path: Path, collate: str) -> None:
    assert found(tmp_path, collate)


@pytest.mark.parametrize(
    "collate",
    [
        "mask",
        "part",
        "collate_unknown",
        "functools.partial(scale, factor=dist.get_rank())",
        "Pad(tokenizer, dist.get_rank())",
        "Pad(collate_unknown, 128)",
        "transformers.DataCollatorForLanguageModeling(tokenizer)",
    ],
)
def test_a_function_that_may_make_another_batch(tmp_path: Path, collate: str) -> None:
    assert not found(tmp_path, collate)

"""FSDP501 on decisions by what libraries and filters make of the rank's own data."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """\
import collections
import copy
import json
import re
import einops
import evaluate
import numpy as np
import scipy.stats
import training_tools
from accelerate.utils import gather
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer

dist.init_process_group("nccl")
tokenizer = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2")
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
data = training_tools.dataset()
for batch in DataLoader(data, batch_size=2, sampler=DistributedSampler(data)):
    BODY
    if TEST:
        continue
    model(batch["tokens"]).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def found(tmp_path: Path, body: str, test: str) -> bool:
    lines = body.replace("\n", "\n    ")
    code = PROGRAM.replace("BODY", lines or "pass").replace("TEST", test)
    return bool(findings(program(tmp_path, code), "FSDP501"))


TEXTS = 'texts = tokenizer.batch_decode(batch["tokens"])'


@pytest.mark.parametrize(
    ("body", "test"),
    [
        (TEXTS, "texts[0].startswith('#')"),
        (TEXTS + "\nanswer = json.loads(texts[0])", "answer['score'] < 0.5"),
        (TEXTS + "\nfound = re.findall('x', texts[0])", "found[0] == 'x'"),
        ("flat = einops.rearrange(batch['mask'], 'b t -> (b t)')", "flat.sum() == 0"),
        ("p = scipy.stats.entropy(batch['score'].cpu().numpy())", "p > 3"),
        ("given = model.generate(batch['tokens'])", "(given == 0).all()"),
        ("kept = batch['labels'][batch['labels'] != -100]", "kept.numel() == 0"),
        ("kept = batch['labels'][batch['labels'] != -100]", "len(kept) == 0"),
        ("kept = batch['labels'][batch['mask'].bool()]", "kept.shape[0] == 0"),
        ("kept = list(filter(lambda one: one > 0.5, batch['score']))", "len(kept) == 0"),
        ("kept = list(filter(lambda one: one > 0.5, batch['score']))", "not kept"),
        ("count = sum(1 for one in batch['score'] if one > 0.5)", "count == 0"),
    ],
)
def test_results_of_own_data(tmp_path: Path, body: str, test: str) -> None:
    assert found(tmp_path, body, test)


@pytest.mark.parametrize(
    ("body", "test"),
    [
        ("score = gather(batch['score'])", "score.sum() == 0"),
        ("score = evaluate.load('rouge').compute(predictions=batch['score'])", "score < 0.5"),
        ("score = training_tools.reduced(batch['score'])", "score.sum() == 0"),
        ("training_tools.reduce_in_place(batch['score'])", "batch['score'].sum() == 0"),
        ("flat = einops.rearrange(batch['mask'], 'b t -> (b t)')", "flat.shape[0] == 0"),
        ("given = model.generate(batch['tokens'])\ndist.broadcast(given, src=0)", "given[0, 0] == 0"),
        ("chosen = batch['labels'][batch['index']]", "chosen.numel() == 0"),
        ("kinds = set(batch['kind'])", "not kinds"),
        ("waiting = collections.deque(batch['kind'])", "not waiting"),
        ("copied = copy.copy(batch)", "not copied"),
        ("kept = list(filter(lambda one: True, batch['score']))", "len(kept) == 0"),
        ("count = sum(1 for one in batch['score'])", "count == 0"),
    ],
)  # fmt: skip
def test_other_results(tmp_path: Path, body: str, test: str) -> None:
    assert not found(tmp_path, body, test)

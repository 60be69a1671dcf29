"""FSDP429: means of each rank that a reduction adds, in the spellings of programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

SETUP = """
import logging
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler
from tqdm import tqdm

logger = logging.getLogger(__name__)
dist.init_process_group("gloo")
data = make_data()
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = fully_shard(nn.Linear(8, 4))


def evaluate():
    total, count = 0.0, 0
    with torch.no_grad():
        for x, y in tqdm(loader):
            loss = F.cross_entropy(model(x), y)
            {turn}
    {after}


{use}
"""
SUM = "total += loss.item()"
BAD = {
    "tensor of a number": (
        SUM,
        "t = torch.tensor([total], device='cuda'); dist.all_reduce(t); return t.item() / len(loader)",
        "print(f'{evaluate():.3f}')",
    ),
    "number of a batch": (
        "total += loss.item() * x.size(0); count += x.size(0)",
        "t = torch.tensor(total); dist.all_reduce(t); t /= count; return t.item()",
        "logger.info('loss %s', evaluate())",
    ),
    "tokens of the rank": (
        "total += loss.item(); count += (y != -100).sum().item()",
        "t = torch.tensor(total); dist.all_reduce(t); return t / count",
        "print('loss', evaluate().item())",
    ),
    "perplexity": (
        SUM,
        "t = torch.tensor(total / len(loader)); dist.all_reduce(t); return math.exp(t.item())",
        "print('perplexity', evaluate())",
    ),
    "element of several sums": (
        "total += loss.item(); count += (model(x).argmax(-1) == y).sum().item()",
        "t = torch.tensor([total, count]); dist.all_reduce(t); return t[0].item() / len(loader)",
        "print(f'loss {evaluate()}')",
    ),
    "method that divides": (
        "total += loss.detach()",
        "dist.all_reduce(total, op=dist.ReduceOp.SUM); return total.div(len(loader))",
        "print(f'loss {evaluate()}')",
    ),
    "reduction to one rank": (
        SUM,
        "t = torch.tensor(total / len(loader)); dist.reduce(t, 0); return t.item()",
        "value = evaluate()\nif dist.get_rank() == 0:\n    print(f'{value}')",
    ),
    "entry of a dict": (
        SUM,
        "t = torch.tensor(total); dist.all_reduce(t); return {'loss': t.item() / len(loader)}",
        "wandb.log(evaluate())",
    ),
    "tuple of values": (
        SUM,
        "t = torch.tensor(total / len(loader)); dist.all_reduce(t); return t.item()",
        "print('loss %s of epoch %s' % (evaluate(), 1))",
    ),
    "mean of a list": (
        "losses.append(loss.item())",
        "t = torch.tensor(sum(losses) / len(losses)); dist.all_reduce(t); return t.item()",
        "print(f'{evaluate()}')",
    ),
}
MEAN = "t = torch.tensor(total / len(loader)); dist.all_reduce(t); return t.item()"
SHOWN = {
    "logger in a variable": "say = logger.info\nsay('%s', evaluate())",
    "print in a variable": "show = print\nshow(evaluate())",
    "a board": "from torch.utils.tensorboard import SummaryWriter as W\nW().add_scalar('a', evaluate(), 1)",
    "a text": "text = '{:.3f}'.format(evaluate())",
    "a file of JSON": "import json\njson.dump({'a': evaluate()}, open('a.json', 'w'))",
    "a run of wandb": "import wandb as w\nw.init().log({'a': evaluate()})",
    "a progress bar": "bar = tqdm([1])\nbar.set_postfix(a=evaluate())",
    "a function of the program": "def keep(x):\n    print(x)\n\nkeep(evaluate())",
    "a tracker that is not known": "from elsewhere import tracker\ntracker.log(evaluate())",
}
NOT_SHOWN = {
    "a logarithm": "value = math.log(evaluate())",
    "a logarithm of torch": "value = torch.log(torch.tensor(evaluate()))",
    "a function with such a name": "def log(x):\n    return x > 1\n\nlog(evaluate())",
    "a class with such a method": (
        "class Best:\n    def log(self, x):\n        self.x = x\n\nBest().log(evaluate())"
    ),
}
GOOD = {
    "number of ranks in the divisor": (
        SUM,
        "t = torch.tensor(total); dist.all_reduce(t); return t.item() / (len(loader) * dist.get_world_size())",
        "print(f'{evaluate()}')",
    ),
    "divided by the ranks at last": (
        SUM,
        "t = torch.tensor(total); dist.all_reduce(t); return t.item() / len(loader)",
        "print(f'{evaluate() / dist.get_world_size()}')",
    ),
    "size of the whole dataset": (
        SUM,
        "t = torch.tensor(total); dist.all_reduce(t); return t.item() / len(data)",
        "print(f'{evaluate()}')",
    ),
    "size of the dataset of the loader": (
        SUM,
        "t = torch.tensor(total); dist.all_reduce(t); return t.item() / len(loader.dataset)",
        "print(f'{evaluate()}')",
    ),
    "count of all ranks": (
        "total += loss.item(); count += 1",
        "t = torch.tensor([total, count]); dist.all_reduce(t); return (t[0] / t[1]).item()",
        "print(f'{evaluate()}')",
    ),
    "count reduced by itself": (
        "total += loss.item(); count += 1",
        "t, n = torch.tensor(total), torch.tensor(count); dist.all_reduce(t); dist.all_reduce(n); return t / n",
        "print(f'{evaluate()}')",
    ),
    "count reduced by unknown code": (
        "total += loss.item(); count += 1",
        "t, n = torch.tensor(total), torch.tensor(count); dist.all_reduce(t); sync(n); return t / n",
        "print(f'{evaluate()}')",
    ),
    "average": (
        SUM,
        "t = torch.tensor(total / len(loader)); dist.all_reduce(t, op=dist.ReduceOp.AVG); return t.item()",
        "print(f'{evaluate()}')",
    ),
    "compared alone": (
        SUM,
        "t = torch.tensor(total / len(loader)); dist.all_reduce(t); return t.item()",
        "best = min(best, evaluate())",
    ),
    "list of values to compare": (
        SUM,
        "t = torch.tensor(total / len(loader)); dist.all_reduce(t); return t.item()",
        "values = []\nvalues.append(evaluate())\nprint(values)",
    ),
    "finite on all ranks": (
        SUM,
        "t = torch.tensor(total / len(loader)); dist.all_reduce(t); return math.isfinite(t.item())",
        "print(f'finite: {evaluate()}')",
    ),
    "reduced by itself elsewhere": (
        SUM,
        "t = torch.tensor(total / len(loader)); dist.all_reduce(t); t *= factor; return t.item()",
        "print(f'{evaluate()}')",
    ),
    "total of all ranks": (
        SUM,
        "t = torch.tensor(total); dist.all_reduce(t); return t.item()",
        "print(f'sum of the losses {evaluate()}')",
    ),
}


def _codes(tmp_path: Path, turn: str, after: str, use: str) -> set[str]:
    code = SETUP.format(turn=turn, after=after, use=use)
    if "losses" in turn:
        code = code.replace("total, count = 0.0, 0", "losses = []")
    return {one.rule.code for one in findings(program(tmp_path, code), "FSDP429")}


@pytest.mark.parametrize("case", BAD)
def test_a_sum_of_means_that_is_shown_is_found(tmp_path: Path, case: str) -> None:
    assert _codes(tmp_path, *BAD[case]) == {"FSDP429"}


@pytest.mark.parametrize("case", GOOD)
def test_a_sum_that_is_divided_or_not_shown_is_fine(tmp_path: Path, case: str) -> None:
    assert _codes(tmp_path, *GOOD[case]) == set()


@pytest.mark.parametrize("case", SHOWN)
def test_what_shows_a_number(tmp_path: Path, case: str) -> None:
    assert _codes(tmp_path, SUM, MEAN, SHOWN[case]) == {"FSDP429"}


@pytest.mark.parametrize("case", NOT_SHOWN)
def test_what_shows_no_number(tmp_path: Path, case: str) -> None:
    assert _codes(tmp_path, SUM, MEAN, NOT_SHOWN[case]) == set()

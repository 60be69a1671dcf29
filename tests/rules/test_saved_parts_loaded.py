"""FSDP301 names the places where every rank loads the file with one rank's part."""

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
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
args = parser.parse_args()
model = FSDP(nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
if args.resume:
    {load}
for x in batches():
    model(x).mean().backward()
    optimizer.step()
    if dist.get_rank() == 0:
        torch.save({{"optimizer": optimizer.state_dict()}}, "last.pt")
"""


def places(folder: Path, load_text: str) -> list[tuple[int, list[int]]]:
    """The lines of the findings, each with the lines of the loads that it names."""
    path = folder / "program.py"
    path.write_text(PROGRAM.format(load=load_text))
    rule = rule_by_code("FSDP301")
    assert rule is not None
    found = check(load([path]), [rule()])
    return [
        (
            one.site.location().line,
            [site.location().line for site, word in one.related if "loads" in word],
        )
        for one in found
    ]


def test_a_load_of_one_file_on_every_rank(tmp_path: Path) -> None:
    text = 'optimizer.load_state_dict(torch.load(args.resume)["optimizer"])'
    assert places(tmp_path, text) == [(18, [13])]


@pytest.mark.parametrize(
    "text",
    [
        'optimizer.load_state_dict(torch.load(f"{dist.get_rank()}.pt")["optimizer"])',
        'model.load_state_dict(torch.load(args.resume)["model"])',
        "optimizer.load_state_dict(unknown(args.resume))",
    ],
)
def test_another_load(tmp_path: Path, text: str) -> None:
    assert places(tmp_path, text) == [(18, [])]

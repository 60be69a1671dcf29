"""Candidates that differ only in numbers are one choice; other differences make another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

from fsdplint.interpreter import Program

HEAD = """\
import argparse
from functools import partial
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--name")
args = parser.parse_args()


class Body(nn.Module):
    def __init__(self, width, depth=1):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))


"""
SIZES = {
    "functions": """
def tiny(**kwargs):
    '''A tiny body.'''
    return Body(width=64, depth=2, **kwargs)

def base(**kwargs):
    '''A larger one.'''
    return Body(width=768, depth=12, **kwargs)

BODIES = {"tiny": tiny, "base": base}
model = BODIES[args.name]()
""",
    "partials": """
BODIES = {"tiny": partial(Body, 64, depth=2), "base": partial(Body, 768, depth=12)}
model = BODIES[args.name]()
""",
    "arguments": """
BODIES = {"tiny": {"cls": Body, "width": 64}, "base": {"cls": Body, "width": 768}}
entry = BODIES[args.name]
model = entry["cls"](entry["width"])
""",
}
DIFFERENT = {
    "a text": """
def tiny():
    print("tiny")
    return Body(64)

def base():
    print("base")
    return Body(64)

BODIES = {"tiny": tiny, "base": base}
model = BODIES[args.name]()
""",
    "a number that is often tested": """
def tiny():
    return Body(64, depth=1)

def base():
    return Body(64, depth=12)

BODIES = {"tiny": tiny, "base": base}
model = BODIES[args.name]()
""",
    "a flag": """
def tiny(model):
    fully_shard(model, reshard_after_forward=True)

def base(model):
    fully_shard(model, reshard_after_forward=False)

WAYS = {"tiny": tiny, "base": base}
model = Body(8)
WAYS[args.name](model)
""",
}
TRAIN = """
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters())
"""


def name_tests(found: Program) -> set[str]:
    """The tests of the name that some run decided."""
    return {key for trace in found.traces for key in trace.decisions if ".name " in key}


@pytest.mark.parametrize("sizes", SIZES)
def test_sizes_are_one_configuration(tmp_path: Path, sizes: str) -> None:
    found = program(tmp_path, SIZES[sizes] + TRAIN, header=HEAD)
    assert not name_tests(found)
    assert not found.cuts


@pytest.mark.parametrize("difference", DIFFERENT)
def test_other_differences_are_configurations(tmp_path: Path, difference: str) -> None:
    found = program(tmp_path, DIFFERENT[difference] + TRAIN, header=HEAD)
    assert name_tests(found)


def test_a_finding_names_all_sizes_for_which_it_holds(tmp_path: Path) -> None:
    body = """
        def shard_late_1():
            model = Body(64)
            optimizer = torch.optim.Adam(model.parameters())
            fully_shard(model)
            return model, optimizer

        def shard_late_2():
            model = Body(128)
            optimizer = torch.optim.Adam(model.parameters())
            fully_shard(model)
            return model, optimizer

        def shard_early():
            model = Body(64)
            fully_shard(model)
            return model, torch.optim.Adam(model.parameters())

        WAYS = {"late-1": shard_late_1, "late-2": shard_late_2, "early": shard_early}
        model, optimizer = WAYS[args.name]()
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
    """
    (finding,) = findings(program(tmp_path, body, header=HEAD), "FSDP103")
    texts = [guard.text for guard in finding.configuration]
    assert texts == ["args.name in ('late-1', 'late-2')"]

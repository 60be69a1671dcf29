"""Tests of command-line arguments of which the program says which values they have."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import program

from fsdplint.trace import Collective

HEAD = """\
import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
"""
BODY = """
args = parser.parse_args()
dist.init_process_group("gloo")
model = fully_shard(nn.Linear(8, 8))
"""
STAGE = 'parser.add_argument("--stage", default="a", choices=["a", "b"])'
ELSE = """\
if args.stage == "a":
    dist.all_reduce(one)
elif args.stage == "b":
    dist.all_gather(two)
else:
    dist.broadcast(three)
"""


def seen(folder: Path, argument: str, code: str) -> set[str]:
    """The collectives of all configurations."""
    found = program(folder, argument + BODY + code, header=HEAD)
    assert found.traces
    return {event.api for trace in found.traces for event in trace.of(Collective)}


@pytest.mark.parametrize(
    "argument",
    [
        STAGE,
        'parser.add_argument("--stage", "-s", choices=("a", "b"), required=True)',
        'parser.add_argument("stage", choices=("a", "b"))',
        'STAGES = ["a", "b"]\nparser.add_argument("--the-stage", dest="stage", default="b", choices=STAGES)',
        'parser.add_argument("--stage", choices=["a"], default="b")',
        'parser.add_argument("--stage", choices=["a"], required=False)\nparser.set_defaults(stage="b")',
    ],
)
def test_an_argument_has_no_value_besides_its_choices(tmp_path: Path, argument: str) -> None:
    assert "broadcast" not in seen(tmp_path, argument, ELSE)


def test_each_choice_is_tried(tmp_path: Path) -> None:
    assert seen(tmp_path, STAGE, ELSE) == {"all_reduce", "all_gather"}


@pytest.mark.parametrize(
    "code",
    [
        "if args.stage == 'c':\n    dist.broadcast(three)\n",
        "if args.stage == 'c':\n    fully_shard(three)\n    dist.broadcast(three)\n",
        "if args.stage not in ('a', 'b'):\n    dist.broadcast(three)\n",
        "if args.stage is None:\n    dist.broadcast(three)\n",
        "if not args.stage:\n    dist.broadcast(three)\n",
        "if args.stage != 'a' and args.stage != 'b':\n    dist.broadcast(three)\n",
        "match args.stage:\n    case 'a':\n        pass\n    case 'b':\n        pass\n"
        "    case _:\n        dist.broadcast(three)\n",
    ],
)
def test_other_values_reach_no_code(tmp_path: Path, code: str) -> None:
    assert "broadcast" not in seen(tmp_path, STAGE, code)


@pytest.mark.parametrize(
    "argument",
    [
        'parser.add_argument("--stage", choices=["a", "b"])',  # None
        'parser.add_argument("--stage", choices=["a", "b"], default="c")',
        'parser.add_argument("--stage", choices=["a", "b"], default=read())',
        'parser.add_argument("--stage", choices=["a", "b"], nargs="*")',
        'parser.add_argument("--stage", choices=["a", "b"], default="a", action="append")',
        'parser.add_argument("--stage", choices=sorted(read()), default="a")',
        'parser.add_argument("--stage", default="a", choices=["a", "b"], **read())',
        f'{STAGE}\nparser.set_defaults(stage="c")',
        f"{STAGE}\nparser.set_defaults(**read())",
        f'{STAGE}\nother = argparse.ArgumentParser()\nother.add_argument("--stage")',
    ],
)
def test_an_argument_may_have_other_values(tmp_path: Path, argument: str) -> None:
    read = "from elsewhere import read\n"
    assert "broadcast" in seen(tmp_path, read + argument, ELSE)


def test_a_changed_argument_may_have_other_values(tmp_path: Path) -> None:
    changed = "from elsewhere import read\nargs.stage = read()\n"
    assert "broadcast" in seen(tmp_path, STAGE, changed + ELSE)


def test_a_pair_of_conditions_leaves_a_choice(tmp_path: Path) -> None:
    code = "first, second = args.stage == 'a', args.stage == 'b'\n"
    code += "if not first and not second:\n    dist.broadcast(three)\n"
    assert "broadcast" not in seen(tmp_path, STAGE, code)

"""The cases of a `match` are branches that the search takes, wherever they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEAD = """\
import argparse
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--strategy")
parser.add_argument("--ranks", type=int)
args = parser.parse_args()
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters())
"""
STEP = """
model(torch.randn(2, 8)).sum().backward()
optimizer.step()
"""
CASES = ['"none"', '"ddp"', '"fsdp"', '"tp"']
DEFAULTS = {
    "none": "",
    "error": "    case _:\n        raise ValueError(args.strategy)\n",
    "exit": "    case _:\n        raise SystemExit(2)\n",
    "code": "    case _:\n        print(args.strategy)\n",
}


def matching(order: list[str], default: str, subject: str = "args.strategy") -> str:
    """A `match` whose case for "fsdp" shards the model."""
    lines = [f"match {subject}:"]
    for case in order:
        lines += [
            f"    case {case}:",
            f"        {'fully_shard(model)' if 'fsdp' in case else 'pass'}",
        ]
    return "\n".join(lines) + "\n" + default


@pytest.mark.parametrize("default", DEFAULTS)
@pytest.mark.parametrize("at", range(4))
def test_a_case_is_taken_at_each_place(tmp_path: Path, at: int, default: str) -> None:
    order = [case for case in CASES if "fsdp" not in case]
    order.insert(at, '"fsdp"')
    found = program(tmp_path, matching(order, DEFAULTS[default]) + STEP, header=HEAD)
    assert findings(found, "FSDP103")
    assert not found.cuts


@pytest.mark.parametrize(
    ("subject", "case"),
    [
        ("(args.strategy, args.ranks)", '("fsdp", 8)'),
        ("args.strategy", '"fsdp" if args.ranks > 1'),
        ("args.strategy", '"fsdp" | "fsdp2"'),
        ("args.strategy", '"fsdp" as kind'),
        ("args", "argparse.Namespace(strategy='fsdp')"),
    ],
)
def test_a_pattern_with_parts_is_taken(tmp_path: Path, subject: str, case: str) -> None:
    order = ['("none", 1)' if subject.startswith("(") else '"none"', case]
    found = program(tmp_path, matching(order, DEFAULTS["error"], subject) + STEP, header=HEAD)
    assert findings(found, "FSDP103")


def test_a_default_that_shards_is_taken(tmp_path: Path) -> None:
    default = "    case _:\n        fully_shard(model)\n"
    order = [case for case in CASES if "fsdp" not in case]
    found = program(tmp_path, matching(order, default) + STEP, header=HEAD)
    assert findings(found, "FSDP103")


def test_cases_that_exclude_each_other_show_nothing_together(tmp_path: Path) -> None:
    body = """
        match args.strategy:
            case "fsdp":
                fully_shard(model)
            case "ddp":
                print("ddp")
        match args.strategy:
            case "fsdp":
                optimizer = torch.optim.Adam(model.parameters())
            case _:
                pass
    """
    found = program(tmp_path, body + STEP.replace("\n", "\n        "), header=HEAD)
    assert not findings(found, "FSDP103")


def test_a_case_that_cannot_be_followed_is_no_comparison_with_a_number(tmp_path: Path) -> None:
    """Its condition says nothing about the numbers that the subject is compared with."""
    body = """
        match args.ranks:
            case 8:
                pass
            case settings.RANKS:
                fully_shard(model)
        if args.ranks == 1:
            optimizer = torch.optim.Adam(model.parameters())
    """
    found = program(tmp_path, body + STEP.replace("\n", "\n        "), header=HEAD)
    keys = {key for trace in found.traces for key in trace.decisions}
    assert any(key.endswith("args().ranks matches settings.RANKS") for key in keys)
    assert findings(found, "FSDP103")

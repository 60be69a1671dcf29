"""Facts of programs that are too large to try all configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.program_facts import Half, compared_facts
from fsdplint.interpreter import Program, load
from fsdplint.interpreter.cuts import Cut

PROGRAM = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

model = nn.Linear(4, 4)
fully_shard(model)
if os.environ["LOG"] == "yes":
    print("logs")
    if os.environ["EVERY"] == "step":
        {work}
{more}
"""
CAST = "model.to(torch.bfloat16)"


def program(folder: Path, work: str, more: str, *, is_cut: bool) -> Half:
    path = folder / "train.py"
    path.parent.mkdir()
    path.write_text(PROGRAM.format(work=work, more=more), encoding="utf-8")
    found: Program = load([path], with_arguments=True)
    if is_cut:
        site = next(event.site for trace in found.traces for event in trace.events)
        found.cuts[str(path)] = Cut(site, "not all configurations")  # type: ignore[arg-type]
    return Half(found, lambda name: Path(name).name)


@pytest.mark.parametrize(
    ("is_cut", "more", "outcome"),
    [
        (False, "", Outcome.DIFFERS),
        (True, "", Outcome.NOT_FOLLOWED),
        (True, "model.requires_grad_(False)", Outcome.DIFFERS),
    ],
)
def test_what_a_cut_program_lacks_under_two_tests(
    is_cut: bool, more: str, outcome: Outcome, tmp_path: Path
) -> None:
    before = program(tmp_path / "before", "pass" if more else CAST, more, is_cut=False)
    after = program(tmp_path / "after", "pass", "", is_cut=is_cut)
    assert outcome in {one.outcome for one in compared_facts(before, after)}
    assert outcome is Outcome.DIFFERS or not any(
        one.outcome is Outcome.DIFFERS for one in compared_facts(before, after)
    )

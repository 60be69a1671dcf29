"""`model[i]` with an unknown `i`: what happens to the element is not known of any certain one."""

from __future__ import annotations

from pathlib import Path

from programs import findings, program

from fsdplint.trace import Called, Sharded

LIST = """\
import sys
dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8))
at = int(sys.argv[1])
"""


def test_an_unknown_element_is_none_of_the_known_ones(tmp_path: Path) -> None:
    found = program(
        tmp_path, LIST + "fully_shard(model[at])\nfully_shard(model)\nmodel(torch.ones(2, 8))\n"
    )
    trace = found.traces[0]
    units = {one.module for one in trace.of(Sharded)}
    known = [one for one in trace.of(Called) if one.inside is not None and one.module not in units]
    assert len(units) == 2 and len(known) == 3  # one of them is the unit


def test_a_second_unknown_element_need_not_be_the_first(tmp_path: Path) -> None:
    code = LIST + (
        "model[0].requires_grad_(False)\nfully_shard(model[at])\nfully_shard(model[0])\n"
        "fully_shard(model)\nmodel(torch.ones(2, 8))\n"
    )
    assert not findings(program(tmp_path, code), "FSDP111")


def test_any_of_the_units_is_wrong(tmp_path: Path) -> None:
    code = LIST + (
        "for layer in model:\n    fully_shard(layer)\n"
        "model[at].forward(torch.ones(2, 8)).sum().backward()\n"
    )
    assert len(findings(program(tmp_path, code), "FSDP101")) == 1

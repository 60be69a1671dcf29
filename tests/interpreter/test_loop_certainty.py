"""Which events of loops over modules are certain to be about the module that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.interpreter.loop_certainty import StaticCertainty
from fsdplint.trace import Sharded

PROGRAM = """\
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from somewhere import chosen, options

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def shard(module):
    if chosen(module):
        fully_shard(module)


"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("fully_shard(model[0])", True),
        ("if options.fsdp:\n    fully_shard(model[0])", True),
        ("for m in model:\n    fully_shard(m)", False),
        ("for m in model.children():\n    fully_shard(m)", True),
        ("for m in reversed(list(model.modules())):\n    fully_shard(m)", True),
        ("for m in (model[0], model[2]):\n    fully_shard(m)", True),
        (
            "for m in model.modules():\n    if isinstance(m, nn.Linear):\n        fully_shard(m)",
            True,
        ),
        ("for m in model.modules():\n    if chosen(m):\n        fully_shard(m)", False),
        ("for n, m in model.named_modules():\n    if chosen(n):\n        fully_shard(m)", False),
        (
            "for n, m in model.named_modules():\n    if not n:\n        continue\n    fully_shard(m)",
            False,
        ),
        (
            "for m in model.modules():\n    if not isinstance(m, nn.Linear):\n        continue\n"
            "    fully_shard(m)",
            True,
        ),
        ("for m in [m for m in model.modules() if chosen(m)]:\n    fully_shard(m)", False),
        ("for m in filter(chosen, model.modules()):\n    fully_shard(m)", False),
        ("if options.fsdp:\n    for m in model.modules():\n        fully_shard(m)", True),
        ("for m in model.modules():\n    shard(m)", False),
        ("model.apply(shard)", False),
        ("[fully_shard(m) for m in model.modules() if chosen(m)]", False),
    ],
)
def test_certain(code: str, expected: bool, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM + code + "\nprint(model)\n", encoding="utf-8")
    traces = [trace for trace in load([path]).traces if trace.complete]
    events = [event for trace in traces for event in trace.of(Sharded)]
    assert events
    assert {StaticCertainty().of_module(event) for event in events} == {expected}

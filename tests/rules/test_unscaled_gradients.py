"""FSDP417: which calls of `unscale_` and `step` a scaler gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import json, sys
import torch
import torch.distributed as dist
from library import wrap
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")
scaler.scale({scale}model(torch.ones(2, 8)).sum()).backward()
{unscale}
torch.nn.utils.clip_grad_norm_(model.parameters(), {bound})
scaler.step({step}optimizer)
scaler.update()
"""


SETTING = 'json.load(open(sys.argv[1]))["train"]["clip"]'


def found(folder: Path, **parts: str) -> int:
    main = folder / "main.py"
    main.write_text(
        PROGRAM.format(**({"scale": "", "unscale": "pass", "step": "", "bound": "1.0"} | parts))
    )
    rule = rule_by_code("FSDP417")
    assert rule is not None
    return len(check(load([main]), [rule()]))


@pytest.mark.parametrize(
    "unscale",
    [
        "scaler.unscale_(optimizer)",
        "scaler.unscale_(optimizer=optimizer)",
        "scaler.unscale_(wrap(model).inner_optimizer)",
    ],
)
def test_gradients_that_are_divided_by_the_scale(unscale: str, tmp_path: Path) -> None:
    assert not found(tmp_path, unscale=unscale)


@pytest.mark.parametrize(
    "parts", [{}, {"step": "optimizer="}, {"scale": "outputs="}, {"bound": SETTING}]
)
def test_gradients_that_are_not(parts: dict[str, str], tmp_path: Path) -> None:
    assert found(tmp_path, **parts) == 1


@pytest.mark.parametrize(
    "bound",
    [
        f"{SETTING} * scaler.get_scale()",
        "json.load(file).clip * scaler.scale_of(1).value",
        "unknown()",
        "1e9",
    ],
)
def test_bounds_that_may_have_the_scale(bound: str, tmp_path: Path) -> None:
    assert not found(tmp_path, bound=bound)

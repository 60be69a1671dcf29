"""Tests of parameters: whether they are DTensors, and on which device they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import Collective, Ranks, Saved, Sharded

IS_SHARDED = """
from torch.distributed.tensor import DTensor

def is_sharded(model):
    return any(isinstance(p, DTensor) for p in model.parameters())

def train(model):
    {check}
    for part in model.layers:
        fully_shard(part)
    {between}
    fully_shard(model)
    return model

model = train(Net())
dist.barrier()
"""


@pytest.mark.parametrize(
    "check",
    [
        "if is_sharded(model):\n        raise RuntimeError('sharded before')",
        "if isinstance(next(model.parameters()), DTensor):\n        raise RuntimeError('sharded')",
        "assert not is_sharded(model)",
        "if next(model.parameters()).is_cuda:\n        raise RuntimeError('on a GPU')",
        "if any(p.is_meta for p in model.parameters()):\n        raise RuntimeError('meta')",
    ],
)
def test_a_check_before_the_sharding_ends_no_run(tmp_path: Path, check: str) -> None:
    found = program(tmp_path, IS_SHARDED.format(check=check, between="pass"))
    assert all(list(trace.of(Collective)) for trace in found.traces)


def test_a_check_between_the_shardings_finds_dtensors(tmp_path: Path) -> None:
    between = "if not is_sharded(model):\n        raise RuntimeError('no units')"
    found = program(tmp_path, IS_SHARDED.format(check="pass", between=between))
    assert all(list(trace.of(Collective)) for trace in found.traces)


SAVES = """
from torch.distributed.tensor import DTensor

def is_sharded(model):
    return any(isinstance(p, DTensor) for p in model.parameters())

model = Net()
for part in model.layers:
    fully_shard(part)
{root}
with torch.no_grad():
    model(torch.ones(2, 8))
if is_sharded(model):
    dcp.save(get_model_state_dict(model), checkpoint_id="model")
elif dist.get_rank() == 0:
    torch.save(model.state_dict(), "model.pt")
"""


@pytest.mark.parametrize(
    "root",
    [
        "fully_shard(model)",
        "fully_shard(model, reshard_after_forward=False)",
        "fully_shard(model, reshard_after_forward=True)",
    ],
)
def test_units_stay_dtensors_after_a_forward(tmp_path: Path, root: str) -> None:
    """The parameters of the root may be gathered after it: `any` asks for one of all."""
    found = program(tmp_path, SAVES.format(root=root))
    assert not findings(found, "FSDP301")


def test_a_plain_model_is_saved_by_one_rank(tmp_path: Path) -> None:
    body = SAVES.replace("for part in model.layers:\n    fully_shard(part)\n", "")
    saved = list(events(program(tmp_path, body.format(root="")), Saved))
    assert saved
    assert all(event.ranks is Ranks.ONE for event in saved)


NUMBERS = [
    "max(1, args.steps)",
    "math.ceil(args.steps / 2)",
    "args.steps + 1",
    "len(args.names)",
    "os.path.join(args.folder, 'model.pt')",
]


@pytest.mark.parametrize("number", NUMBERS)
def test_the_result_of_a_function_or_operator_is_not_none(tmp_path: Path, number: str) -> None:
    body = f"""
        import argparse
        import math
        import os

        args = argparse.ArgumentParser().parse_args()
        value = {number}
        if value is None:
            raise ValueError
        dist.barrier()
        """
    (trace,) = program(tmp_path, body).traces
    assert list(trace.of(Collective))
    assert not trace.decisions


@pytest.mark.parametrize("name", ["max", "min"])
def test_the_largest_of_no_elements_may_be_none(tmp_path: Path, name: str) -> None:
    body = f"""
        import glob
        last = {name}(glob.glob("*.pt"), default=None)
        model = Net()
        if last is None:
            fully_shard(model)
        """
    assert list(events(program(tmp_path, body), Sharded))

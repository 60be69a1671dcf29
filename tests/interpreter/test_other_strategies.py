"""Names of a strategy that contradict what a run has done with its models."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

BACKEND = """
from settings import load

config, mesh = load(), load().mesh


def backend(mesh):
    {tests}
    return "ddp"


def save(model, optimizer):
    if backend(mesh) == "ddp":
        if dist.get_rank() == 0:
            torch.save(optimizer.state_dict(), "optimizer.pt")
        return
    torch.distributed.checkpoint.save({{"model": model.state_dict()}})


model = Net()
if config.size > 1:
    fully_shard(model)
else:
    model = {other}
optimizer = torch.optim.AdamW(model.parameters())
save(model, optimizer)
"""
TESTS = {
    "setting": 'if "shard" in mesh.names:\n        return "fsdp2"',
    "elements": 'if any(size > 1 for size in mesh.shape[1:]):\n        return "fsdp2"',
}


@pytest.mark.parametrize("tests", TESTS.values(), ids=TESTS)
@pytest.mark.parametrize("other", ["nn.parallel.DistributedDataParallel(model)", "model"])
def test_a_sharded_model_is_not_saved_as_one_of_ddp(tmp_path: Path, tests: str, other: str) -> None:
    found = program(tmp_path, BACKEND.format(tests=tests, other=other))
    assert not findings(found, "FSDP301") and not findings(found, "FSDP501")


def test_another_name_is_no_contradiction(tmp_path: Path) -> None:
    body = BACKEND.format(tests=TESTS["setting"], other="model").replace('"ddp"', '"plain"')
    assert findings(program(tmp_path, body), "FSDP301")


def test_a_program_with_both_strategies_tells_them_apart_itself(tmp_path: Path) -> None:
    body = BACKEND.format(tests=TESTS["setting"], other="model").replace(
        "optimizer = ", "critic = nn.parallel.DistributedDataParallel(Net())\noptimizer = "
    )
    assert findings(program(tmp_path, body), "FSDP301")

"""FSDP405 and FSDP710 in a program that shards one part and trains ignored parameters whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

CODE = """
from torch.distributed.device_mesh import init_device_mesh


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.large(self.small(x))


def reduce(parameters):
    flat = torch.cat([p.grad.flatten() for p in parameters])
    dist.all_reduce(flat)


@torch.no_grad()
def clip(sharded, whole, group):
    total = torch.zeros(())
    for p in sharded:
        total += p.grad.to_local().pow(2).sum()
    {sum}
    for p in whole:
        total += p.grad.pow(2).sum()
    factor = (1.0 / (total.sqrt() + 1e-6)).clamp(max=1.0)
    for p in sharded:
        p.grad.mul_(factor)


dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
model = Model()
whole = list(model.small.parameters())
fully_shard(model, mesh=mesh, ignored_params=set(whole))
{apart}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    model(batch()).sum().backward()
    {reduce}
    clip(sharded, whole, mesh["shard"].get_group())
    optimizer.step()
    optimizer.zero_grad()
"""
BY_ID = (
    "skip = {id(p) for p in whole}\nsharded = [p for p in model.parameters() if id(p) not in skip]"
)
APART = {
    "identities": BY_ID,
    "loop": "skip = {id(p) for p in whole}\nsharded = []\nfor p in model.parameters():\n"
    "    if id(p) not in skip:\n        sharded.append(p)",
    "names": "sharded = [p for n, p in model.named_parameters() if not n.startswith('small')]",
    "module": "sharded = list(model.large.parameters())",
}
REDUCE = "reduce(whole)"
SUM = "dist.all_reduce(total, group=group)"


def _codes(tmp_path: Path, **parts: str) -> set[str]:
    found = program(tmp_path, CODE.format(**parts))
    return {code for code in ("FSDP405", "FSDP710") if findings(found, code)}


@pytest.mark.parametrize("apart", APART)
def test_a_local_norm_of_the_sharded_parameters_is_found(tmp_path: Path, apart: str) -> None:
    assert _codes(tmp_path, apart=APART[apart], sum="", reduce=REDUCE) == {"FSDP405"}


@pytest.mark.parametrize("apart", APART)
def test_ignored_parameters_that_nothing_reduces_are_found(tmp_path: Path, apart: str) -> None:
    assert _codes(tmp_path, apart=APART[apart], sum=SUM, reduce="") == {"FSDP710"}


@pytest.mark.parametrize("apart", APART)
def test_a_program_that_reduces_both_is_fine(tmp_path: Path, apart: str) -> None:
    assert _codes(tmp_path, apart=APART[apart], sum=SUM, reduce=REDUCE) == set()


@pytest.mark.parametrize(
    "apart",
    [
        "sharded = [p for p in model.parameters() if id(p) not in chosen()]",
        "skip = {id(p) for p in model.large.parameters()}\n"
        "sharded = [p for p in model.parameters() if id(p) not in skip]",
        "sharded = list(model.parameters())",
    ],
)
def test_a_list_that_may_have_ignored_parameters_is_left_alone(tmp_path: Path, apart: str) -> None:
    assert _codes(tmp_path, apart=apart, sum="", reduce=REDUCE) == set()

"""Random numbers that each rank draws with a seed of its own, and what is chosen by them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from test_rank_local import undecided

DRAWN = "noise = torch.rand(2, 4{})\nif noise.sum() > 3:\n    dist.barrier()\n"
OWN = "generator = torch.Generator().manual_seed(7 + dist.get_rank())\n"


@pytest.mark.parametrize(
    "seed, argument",
    [
        (OWN, ", generator=generator"),
        ("seed = 100 * dist.get_rank()\ntorch.manual_seed(seed)\n", ""),
        ("torch.manual_seed(dist.get_rank())\n", ", generator=None"),
    ],
)
def test_a_seed_of_the_rank(tmp_path: Path, seed: str, argument: str) -> None:
    assert undecided(tmp_path, seed + DRAWN.format(argument)) == ["noise.sum() > 3"]


@pytest.mark.parametrize(
    "seed, argument",
    [
        ("generator = torch.Generator().manual_seed(7)\n", ", generator=generator"),
        (OWN + "generator.manual_seed(7)\n", ", generator=generator"),
        (OWN + "unknown(generator)\n", ", generator=generator"),
        (OWN, ""),
        (OWN, ", generator=unknown"),
        ("torch.manual_seed(dist.get_rank())\ntorch.manual_seed(7)\n", ""),
        ("torch.manual_seed(dist.get_rank())\nseed_everything()\n", ""),
        ("torch.manual_seed(unknown)\n", ""),
    ],
)
def test_a_seed_that_may_be_that_of_all_ranks(tmp_path: Path, seed: str, argument: str) -> None:
    assert undecided(tmp_path, seed + DRAWN.format(argument)) == []


@pytest.mark.parametrize(
    "test",
    [
        "table[rows].sum() > 3",
        "table[rows, :2].max() > 3",
        "table[first : first + 2].sum() > 3",
        "(rows == 3).nonzero().numel() == 0",
        "(rows == 3).nonzero(as_tuple=True)[0].size(0) == 0",
        "len(torch.where(rows == 3)[0]) > 1",
        "rows.topk(2).indices.sum() > 1",
        "model(table[rows]).topk(2, dim=-1).indices.sum() > 1",
    ],
)
def test_what_they_choose(tmp_path: Path, test: str) -> None:
    body = f"""\
{OWN}rows = torch.randint(0, 9, (4,), generator=generator)
first = rows.tolist()[0]
table = unknown(4)
if {test}:
    dist.barrier()
"""
    assert undecided(tmp_path, body) == [test]


@pytest.mark.parametrize("test", ["rows.numel() == 0", "table[rows].size(0) > 1", "len(rows) > 1"])
def test_sizes_that_they_do_not_choose(tmp_path: Path, test: str) -> None:
    body = f"""\
{OWN}rows = torch.randint(0, 9, (4,), generator=generator)
table = unknown(4)
if {test}:
    dist.barrier()
"""
    assert undecided(tmp_path, body) == []


EXPERTS = """\
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 2)
        self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])

    def forward(self, x):
        choice = self.gate(x).argmax(-1)
        for number, expert in enumerate(self.experts):
            chosen = (choice == number).nonzero(as_tuple=True)[0]
            {test}
            x = x + expert(x[chosen]).sum()
        return x

experts = Experts()
{shard}
fully_shard(experts)
generator = torch.Generator().manual_seed(7 + dist.get_rank())
for _ in range(6):
    experts(torch.randn(2, 4, generator=generator)).sum().backward()
"""
SKIP = "if chosen.numel() == 0: continue"
UNITS = "for expert in experts.experts: fully_shard(expert)"


def test_a_unit_that_a_rank_skips_in_a_forward(tmp_path: Path) -> None:
    body = textwrap.dedent(EXPERTS).format(test=SKIP, shard=UNITS)
    assert undecided(tmp_path, body) == ["chosen.numel() == 0"]


@pytest.mark.parametrize("test, shard", [("", UNITS), (SKIP, "")])
def test_a_part_that_all_ranks_gather(tmp_path: Path, test: str, shard: str) -> None:
    """Each rank calls each unit, or the parts are in the unit of the whole model."""
    assert undecided(tmp_path, EXPERTS.format(test=test, shard=shard)) == []

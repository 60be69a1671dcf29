"""Random numbers that each rank draws with a seed of its own, and what is chosen by them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from own_batches import undecided

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


NUMBERS = {
    "rng = np.random.default_rng(7 + dist.get_rank())": "rng.random() > 0.5",
    "rng = np.random.default_rng([7, dist.get_rank()])": "(rng.integers(0, 9, size=4) > 3).any()",
    "rng = np.random.RandomState(seed=dist.get_rank())": "rng.normal() > 3",
    "rng = random.Random(dist.get_rank())": "rng.random() < 0.1",
    "np.random.seed(dist.get_rank())": "np.random.rand() < 0.1",
    "random.seed(10 * dist.get_rank())": "random.randint(0, 9) > 3",
    "from transformers import set_seed\nset_seed(dist.get_rank())": "random.random() > 0.5",
}


def test_numbers_of_numpy_and_python(tmp_path: Path) -> None:
    for seed, test in NUMBERS.items():
        body = f"import random\nimport numpy as np\n{seed}\nif {test}:\n    dist.barrier()\n"
        assert undecided(tmp_path, body) == [test], seed


@pytest.mark.parametrize(
    "seed, test",
    [
        ("rng = np.random.default_rng(7)", "rng.random() > 0.5"),
        ("rng = random.Random(dist.get_rank())\nrng.seed(3)", "rng.random() > 0.5"),
        ("random.seed(dist.get_rank())\nrandom.seed(3)", "random.random() > 0.5"),
        ("random.seed(dist.get_rank())\nseed_everything(3)", "random.random() > 0.5"),
        ("rng = np.random.default_rng(dist.get_rank())", "rng.random(4).shape[0] > 3"),
    ],
)
def test_numbers_that_may_be_the_same(tmp_path: Path, seed: str, test: str) -> None:
    body = f"import random\nimport numpy as np\n{seed}\nif {test}:\n    dist.barrier()\n"
    assert undecided(tmp_path, body) == []


MEMORY = """\
import numpy as np
rng = np.random.default_rng(dist.get_rank())

class Memory:
    def __init__(self):
        self.rows = []

    def push(self, kept):
        for number in np.flatnonzero(kept):
            self.rows.append(number)
        self.rows = self.rows[-8:]

memory = Memory()
for step in range(10):
    memory.push(rng.random(4) > 0.5)
    {agree}
    if {test}:
        model(torch.ones(2, 4)).sum().backward()
"""


@pytest.mark.parametrize(
    "test",
    [
        "len(memory.rows) >= 5",
        "len(memory.rows) // 2 > 3",
        "torch.tensor(len(memory.rows)).item() >= 5",
        "torch.tensor([len(memory.rows)], dtype=torch.float32).max() > 5",
    ],
)
def test_a_list_that_they_fill(tmp_path: Path, test: str) -> None:
    body = textwrap.dedent(MEMORY)
    assert undecided(tmp_path, body.format(test=test, agree="pass")) == [test]


def test_a_length_that_the_ranks_reduce(tmp_path: Path) -> None:
    agree = "size = torch.tensor(len(memory.rows)); dist.all_reduce(size, op=dist.ReduceOp.MIN)"
    body = textwrap.dedent(MEMORY)
    assert undecided(tmp_path, body.format(test="size.item() >= 5", agree=agree)) == []


@pytest.mark.parametrize("norm", ["p.grad.norm().to_local()", "p.grad.norm().to_local().item()"])
def test_a_norm_of_the_part_of_a_rank(tmp_path: Path, norm: str) -> None:
    body = f"""\
model(torch.ones(2, 4)).sum().backward()
for p in model.parameters():
    if {norm} > 3:
        dist.barrier()
"""
    assert undecided(tmp_path, body) == [f"{norm} > 3"]


def test_a_norm_of_all_gradients(tmp_path: Path) -> None:
    """Since torch 2.10, the local part of the norm of all gradients is the norm."""
    body = """\
model(torch.ones(2, 4)).sum().backward()
norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
if norm.to_local() > 3:
    dist.barrier()
"""
    assert undecided(tmp_path, body) == []


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


TURNS = """\
steps = {steps}
torch.manual_seed({seed})
number = torch.randint(0, 4, (1,)){item}
for step in steps[{bounds}]:
    dist.barrier()
"""
OF_EACH_RANK = "7 + dist.get_rank()"


@pytest.mark.parametrize("steps", ["[9, 6, 3]", "torch.tensor([9, 6, 3])", "list(range(9, 0, -3))"])
@pytest.mark.parametrize("item", ["", ".item()"])
def test_turns_over_as_many_elements_as_a_rank_draws(tmp_path: Path, steps: str, item: str) -> None:
    body = TURNS.format(steps=steps, seed=OF_EACH_RANK, item=item, bounds=":number")
    assert undecided(tmp_path, body) == ["for step in steps[:number]"]


@pytest.mark.parametrize(
    ("seed", "bounds"),
    [("7", ":number"), (OF_EACH_RANK, ":2"), (OF_EACH_RANK, "number:"), (OF_EACH_RANK, "::2")],
)
def test_turns_over_as_many_elements_as_all_ranks_take(
    tmp_path: Path, seed: str, bounds: str
) -> None:
    body = TURNS.format(steps="[9, 6, 3]", seed=seed, item="", bounds=bounds)
    assert undecided(tmp_path, body) == []


def test_the_whole_list_of_which_a_rank_takes_some(tmp_path: Path) -> None:
    body = TURNS.format(steps="[9, 6, 3]", seed=OF_EACH_RANK, item="", bounds=":number")
    body = (
        body.replace("    dist.barrier()", "    pass") + "for step in steps:\n    dist.barrier()\n"
    )
    assert undecided(tmp_path, body) == []


def test_turns_over_as_many_elements_as_rank_0_draws(tmp_path: Path) -> None:
    body = TURNS.format(steps="[9, 6, 3]", seed=OF_EACH_RANK, item="", bounds=":number")
    body = body.replace("for step", "dist.broadcast(number, src=0)\nfor step")
    assert undecided(tmp_path, body) == []

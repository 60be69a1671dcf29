"""Elements and samples that each rank picks by a number of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_batches import undecided

ROWS = """
rank, world = dist.get_rank(), dist.get_world_size()

class Prompts:
    def __init__(self, size):
        g = torch.Generator().manual_seed(3)
        self.rows = []
        for _ in range(size):
            n = int(torch.randint(2, 9, (1,), generator=g))
            self.rows.append({row})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]

def generate(ids):
    done = torch.zeros(len(ids), dtype=torch.bool)
    for _ in range(9):
        token = model(ids)[:, -1].argmax(-1).masked_fill(done, 0)
        ids = torch.cat([ids, token[:, None]], 1)
        done |= token == 2
        if done.all():
            break
    return ids

prompts = Prompts(64)
"""
ROW = "torch.randint(3, 9, (n,), generator=g)"
PAIR = f"({ROW}, torch.zeros(n))"
ENTRY = f"{{'ids': {ROW}, 'n': 3}}"


@pytest.mark.parametrize(
    ("row", "passes"),
    [
        (ROW, "for i in range(rank, 64, world):\n    generate(prompts.rows[i][None])\n"),
        (
            PAIR,
            "for i in range(rank, 64, world):\n    ids, _ = prompts.rows[i]\n    generate(ids)\n",
        ),
        (ENTRY, "for i in range(rank, 64, world):\n    generate(prompts[i]['ids'])\n"),
        (ROW, "for i in list(range(64))[rank::world]:\n    generate(prompts[i])\n"),
        (ROW, "generate(prompts[rank])\n"),
    ],
)
def test_a_rank_s_own_prompts(tmp_path: Path, row: str, passes: str) -> None:
    assert undecided(tmp_path, ROWS.format(row=row) + passes) == ["done.all()"]


@pytest.mark.parametrize(
    ("row", "passes"),
    [
        (ROW, "for i in range(64):\n    generate(prompts.rows[i])\n"),
        (ROW, "for i in range(rank, 64, world):\n    generate(prompts.rows[0])\n"),
        ("torch.zeros(4)", "for i in range(rank, 64, world):\n    generate(prompts.rows[i])\n"),
        ("dist.new_group()", "if prompts.rows[rank] is not None:\n    dist.barrier()\n"),
        ("nn.Linear(4, 4)", "if prompts.rows[rank].weight.sum() > 3:\n    dist.barrier()\n"),
        ("'cuda'", "if prompts.rows[rank] == 'cpu':\n    dist.barrier()\n"),
        (ROW, "ids = prompts[rank]\ndist.broadcast(ids, src=0)\ngenerate(ids)\n"),
    ],
)
def test_a_prompt_that_all_ranks_have(tmp_path: Path, row: str, passes: str) -> None:
    assert undecided(tmp_path, ROWS.format(row=row) + passes) == []


SAMPLES = """
rank, world = dist.get_rank(), dist.get_world_size()

class Images:
    def __len__(self):
        return 64

    def __getitem__(self, i):
        g = torch.Generator().manual_seed({seed})
        blank = float(torch.rand(1, generator=g)) < 0.5
        image = torch.randn(3, 8, 8, generator=g)
        return {{"image": {image}, "i": i}}

images = Images()
order = torch.randperm(64, generator=torch.Generator().manual_seed(0)).tolist()
for step in range(8):
    rows = [images[i] for i in order[step * 8 + rank : step * 8 + 8 : world]]
    has_image = torch.tensor([row["image"] is not None for row in rows])
    if has_image.any():
        model(torch.randn(2, 4)).mean().backward()
"""


@pytest.mark.parametrize(
    ("seed", "image"),
    [("i", "None if blank else image"), ("7 + i", "image if not blank else None")],
)
def test_a_part_that_some_samples_lack(tmp_path: Path, seed: str, image: str) -> None:
    body = SAMPLES.format(seed=seed, image=image)
    assert undecided(tmp_path, body) == ["has_image.any()"]


def test_a_part_that_a_function_may_lack(tmp_path: Path) -> None:
    body = """
best = None
for x, y in loader:
    loss = model(x).mean()
    if loss.item() < 3:
        best = 5
    if best is not None:
        dist.barrier()
"""
    assert undecided(tmp_path, body) == ["best is not None"]


@pytest.mark.parametrize(
    ("seed", "image"),
    [
        ("i", "image"),
        ("0", "None if blank else image"),
        ("i", "unknown(image) if blank else None or unknown(i)"),
    ],
)
def test_a_part_that_all_samples_may_have(tmp_path: Path, seed: str, image: str) -> None:
    body = "from tools import unknown\n" + SAMPLES.format(seed=seed, image=image)
    assert undecided(tmp_path, body) == []

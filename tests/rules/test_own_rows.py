"""FSDP501: forwards that end by the elements that a rank takes from a list."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_refused_parameters import found

PROGRAM = """\
def rows_of(n):
    generator = torch.Generator().manual_seed(1)
    rows = []
    for _ in range(n):
        size = int(torch.randint(2, 6, (1,), generator=generator))
        rows.append((torch.randn(size, 8, generator=generator), size))
    return rows


def generate(prompt):
    for _ in range(8):
        prompt = model(prompt)
        if prompt.sum().item() > 1:
            break


rank, world_size = dist.get_rank(), dist.get_world_size()
model = nn.Linear(8, 8)
fully_shard(model)
rows = rows_of(12)
{loop}
"""


@pytest.mark.parametrize(
    ("loop", "count"),
    [
        ("for row, size in rows[rank::world_size]:\n    generate(row)", 1),
        ("for row, size in rows[rank::world_size][:2]:\n    generate(row[:size])", 1),
        ("for row, size in rows:\n    generate(row)", 0),
        ("for row, size in rows[:2]:\n    generate(row)", 0),
    ],
)
def test_rows_that_each_rank_takes(tmp_path: Path, loop: str, count: int) -> None:
    assert len(found(tmp_path, "FSDP501", PROGRAM.format(loop=loop))) == count

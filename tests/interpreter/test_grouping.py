"""`groupby`, `batched`, `pairwise` and `zip_longest` over modules and parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import class_of, events, findings, program

from fsdplint.trace import Sharded

GROUPS = {
    "of a list of parameters": """
        ordered = sorted(model.parameters(), key=lambda p: p.ndim)
        groups = [
            {"params": list(group), "weight_decay": 0.1 if ndim > 1 else 0.0}
            for ndim, group in groupby(ordered, key=lambda p: p.ndim)
        ]
    """,
    "of named parameters": """
        ordered = sorted(model.named_parameters(), key=lambda pair: pair[1].ndim)
        groups = []
        for ndim, group in groupby(ordered, key=lambda pair: pair[1].ndim):
            groups.append({"params": [p for _, p in group]})
    """,
}
TRAIN = """
from itertools import groupby

model = Net()
{}
optimizer = torch.optim.AdamW(groups)
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
for _ in range(3):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_groups_of_parameters_keep_them(tmp_path: Path, groups: str) -> None:
    lines = "\n".join(line[8:] for line in groups.splitlines())
    assert findings(program(tmp_path, TRAIN.format(lines)), "FSDP103")


def test_batches_of_modules(tmp_path: Path) -> None:
    body = """
        from itertools import batched

        first, second, third = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        for group in batched([first, second, third], 2):
            fully_shard(list(group))
        """
    shards = list(events(program(tmp_path, body), Sharded))
    assert [len({event.module, *event.group}) for event in shards] == [2, 1]


@pytest.mark.parametrize(
    ("call", "classes"),
    [
        ("pairwise([nn.ReLU(), nn.Linear(8, 8), nn.Embedding(8, 8)])", ["Linear", "Embedding"]),
        ("zip_longest([None], [nn.Linear(8, 8), nn.Embedding(8, 8)])", ["Linear", "Embedding"]),
        ("zip_longest([1], [nn.Linear(8, 8)], fillvalue=0)", ["Linear"]),
    ],
)
def test_pairs_of_modules(tmp_path: Path, call: str, classes: list[str]) -> None:
    body = f"""
        from itertools import pairwise, zip_longest

        for _, second in {call}:
            fully_shard(second)
        """
    found = program(tmp_path, body)
    assert [class_of(found, event.module) for event in events(found, Sharded)] == classes

"""FSDP126 where a variable holds the test of names that selects the groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

GROUPS = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

model = FSDP(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)))
decay, rest = [], []
for name, p in model.named_parameters():
    is_matrix = {test}
    (decay if is_matrix else rest).append(p)
optimizer = torch.optim.AdamW([{{"params": decay}}, {{"params": rest, "weight_decay": 0.0}}])
"""


@pytest.mark.parametrize(
    "test",
    [
        'name.endswith("weight")',
        'name.endswith("weight") and "norm" not in name',
        'name.endswith("weight") and p.ndim > 1 and "norm" not in name',
        'not name.endswith("bias")',
        'name.endswith(("weight", "kernel")) or "matrix" in name',
    ],
)
def test_a_test_of_names_in_a_variable(tmp_path: Path, test: str) -> None:
    assert findings(program(tmp_path, GROUPS.format(test=test)), "FSDP126")


def test_a_test_of_something_else(tmp_path: Path) -> None:
    assert not findings(program(tmp_path, GROUPS.format(test="p.requires_grad")), "FSDP126")

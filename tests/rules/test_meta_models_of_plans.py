"""Models on the meta device that code out of sight gets before or after `to_empty` (FSDP134)."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """\
import parallel_plans


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x)


dist.init_process_group("gloo")
with torch.device("meta"):
    model = Layer()
BEFORE
fully_shard(model)
model.to_empty(device="cuda")
AFTER
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(dataset):
    model(batch).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", True),
        ("parallel_plans.apply(model)", "", True),
        ("if parallel:\n    parallel_plans.apply(model)", "", True),
        ("", "parallel_plans.apply(model)", False),
        ("", "if pretrained:\n    parallel_plans.apply(model)", False),
        ("", "parallel_plans.apply(list(model.parameters()))", False),
    ],
)
def test_only_code_after_to_empty_may_initialize(
    tmp_path: Path, before: str, after: str, expected: bool
) -> None:
    code = PROGRAM.replace("BEFORE", before).replace("AFTER", after)
    assert bool(findings(program(tmp_path, code), "FSDP134")) is expected

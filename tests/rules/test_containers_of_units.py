"""Gradients of a model that is no unit itself, but whose parts are (FSDP405)."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """\
import timm


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
        self.critic = nn.Linear(8, 1)
        OWN

    def forward(self, x):
        return self.actor(x).mean() + self.critic(x).mean()


dist.init_process_group("nccl")
model = Policy()
SHARD
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(dataset):
    model(batch).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm([one.to_local() for one in gradients])
    for one in gradients:
        one.mul_(1.0 / norm)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("own", "shard", "expected"),
    [
        ("pass", "fully_shard(model.actor)\nfully_shard(model.critic)", True),
        ("pass", "for part in model.children():\n    fully_shard(part)", True),
        (
            "pass",
            "for part in model.actor:\n    fully_shard(part)\nfully_shard(model.critic)",
            True,
        ),
        ("self.scale = nn.Parameter(torch.ones(1))", "fully_shard(model.actor)", False),
        (
            "self.scale = nn.Parameter(torch.ones(1))",
            "for part in model.children():\n    fully_shard(part)",
            False,
        ),
        ("pass", "fully_shard(model.actor)", False),
        ("pass", "fully_shard(model.actor)\nmodel.critic = FSDP(model.critic)", False),
        (
            "self.more = timm.create_model('vit')",
            "fully_shard(model.actor)\nfully_shard(model.critic)",
            False,
        ),
    ],
)
def test_own_norm_of_a_container(tmp_path: Path, own: str, shard: str, expected: bool) -> None:
    code = PROGRAM.replace("OWN", own).replace("SHARD", shard)
    assert bool(findings(program(tmp_path, code), "FSDP405")) is expected

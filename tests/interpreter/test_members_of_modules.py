"""`hasattr` and `getattr` of a module whose class the program defines."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

CODE = """
from torch.distributed.fsdp import register_fsdp_forward_method


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.head(self.body(x))

    def score(self, x):
        return self.head(self.body(x))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x):
        return self.body(x)


def shard(model):
    fully_shard(model)
    if {test}:
        register_fsdp_forward_method(model, "score")
    return model


policy, critic, frozen = shard(Policy()), shard(Critic()), shard(Policy())
for x in batches():
    policy.score(x), critic(x), frozen.score(x)
"""


@pytest.mark.parametrize(
    "test", ['hasattr(model, "score")', 'getattr(model, "score", None) is not None']
)
def test_a_method_of_the_class_is_there(tmp_path: Path, test: str) -> None:
    code = CODE.format(test=test)
    assert not [str(one) for one in findings(program(tmp_path, code), "FSDP102")]


def test_a_method_that_no_class_defines_is_not_there(tmp_path: Path) -> None:
    code = CODE.format(test='hasattr(model, "other")')
    assert findings(program(tmp_path, code), "FSDP102")

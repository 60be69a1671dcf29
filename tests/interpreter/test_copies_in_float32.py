"""An optimizer over copies of the parameters in float32, whose program copies the results back."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """
from torch.distributed.fsdp import MixedPrecisionPolicy

class Trainer:
    def __init__(self, model):
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.copies = [{copy} for p in self.parameters]
        for one in self.copies:
            one.requires_grad = True
        self.optimizer = torch.optim.AdamW(self.copies)

    def step(self):
        for p, one in zip(self.parameters, self.copies):
            one.grad = p.grad.float()
        self.optimizer.step()
        with torch.no_grad():
            for p, one in zip(self.parameters, self.copies):
                p.data.copy_(one.data.to(p.dtype))

model = nn.Linear(8, 8).to(torch.bfloat16)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
fully_shard(model, mp_policy=policy)
trainer = Trainer(model)
model(torch.rand(2, 8)).sum().backward()
trainer.step()
"""


@pytest.mark.parametrize(
    "copy", ["p.detach().clone().to(torch.float32)", "p.detach().float()", "p.data.float()"]
)
def test_copies_in_float32_keep_what_bfloat16_loses(tmp_path: Path, copy: str) -> None:
    assert not findings(program(tmp_path, PROGRAM.format(copy=copy)), "FSDP422")


def test_the_parameters_themselves_lose_it(tmp_path: Path) -> None:
    assert findings(program(tmp_path, PROGRAM.format(copy="p")), "FSDP422")

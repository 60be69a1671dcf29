"""Parts of a model that a name from outside of the program selects."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

from fsdplint.trace import OptimizerBuilt

MODEL = """
import sys
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4)
    def forward(self, x):
        return self.head(self.body(x))
model = Net()
"""
SHARD = """
for part in (model.body, model.head):
    fully_shard(part)
fully_shard(model)
"""
TRAIN = """
for step in range(9):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FORMS = {
    "loop": "groups = []\nfor name in sys.argv[1:]:\n"
    "    groups.append({'params': list(getattr(model, name).parameters())})\n"
    "optimizer = torch.optim.AdamW(groups)\n",
    "comprehension": "optimizer = torch.optim.AdamW("
    "[p for name in sys.argv[1:] for p in getattr(model, name).parameters()])\n",
    "settings": "import yaml\nconfig = yaml.safe_load(open(sys.argv[1]))\n"
    "groups = [{'params': getattr(model, one['part']).parameters(), 'lr': one['lr']} "
    "for one in config['groups']]\noptimizer = torch.optim.AdamW(groups)\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_an_optimizer_gets_the_parameters_of_a_part(tmp_path: Path, form: str) -> None:
    found = program(tmp_path, MODEL + FORMS[form] + SHARD + TRAIN)
    assert findings(found, "FSDP103")
    later = program(tmp_path, MODEL + SHARD + FORMS[form] + TRAIN)
    assert not findings(later, "FSDP103")
    built = [event for trace in later.traces for event in trace.of(OptimizerBuilt)]
    assert built and all(event.modules for event in built)

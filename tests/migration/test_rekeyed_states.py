"""`FSDP.rekey_optim_state_dict`: other keys of an optimizer's state."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, OptimStateKeyType


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 6)
        self.inner = nn.Linear(6, 6)
        self.head = nn.Linear(6, 8, bias=False)
        self.head.weight = self.table.weight

    def forward(self, i):
        return self.head(torch.tanh(self.inner(self.table(i))))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(
    Net(),
    device_id=torch.device("cpu"),
    use_orig_params=True,
)
decay = [p for n, p in model.named_parameters() if not n.endswith("bias")]
rest = [p for n, p in model.named_parameters() if n.endswith("bias")]
optimizer = torch.optim.AdamW([{"params": rest, "weight_decay": 0.0}, {"params": decay}], lr=0.1)
for step in range(3):
    model(torch.tensor([step, 2 + dist.get_rank()])).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
state = FSDP.full_optim_state_dict(model, optimizer)
if dist.get_rank() == 0:
    numbered = FSDP.rekey_optim_state_dict(state, OptimStateKeyType.PARAM_ID, Net())
    again = FSDP.rekey_optim_state_dict(
        optim_state_dict=numbered, optim_state_key_type=OptimStateKeyType.PARAM_NAME, model=Net()
    )
    same = FSDP.rekey_optim_state_dict(again, OptimStateKeyType.PARAM_NAME, Net())
    assert same is again
    for one in (numbered, again):
        for key, values in sorted(one["state"].items()):
            print(key, f"{values['exp_avg_sq'].sum().item():.5f}", int(values["step"]))
        for group in one["param_groups"]:
            print(group["params"], group["weight_decay"])
dist.destroy_process_group()
"""


def test_the_keys_are_those_of_fsdp1(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FSDP." not in after
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == new.status == "ok", f"{old.error}\n{new.error}"
    assert new.stdout == old.stdout


STATE = """
from torch.distributed.fsdp import OptimStateKeyType
model = FSDP(Net())
optimizer = torch.optim.AdamW(model.parameters())
state = FSDP.optim_state_dict(model, optimizer)
"""
KIND = "OptimStateKeyType.PARAM_ID"
BLOCKED = {
    f"FSDP.rekey_optim_state_dict(state, {KIND}, model)": "wrapped model",
    f"FSDP.rekey_optim_state_dict(state, {KIND}, load())": "the code does not show",
    "FSDP.rekey_optim_state_dict(state, getattr(OptimStateKeyType, kind()), Net())": "run time",
    f"FSDP.rekey_optim_state_dict(state, {KIND}, Net(), optim=optimizer)": "further arguments",
}


@pytest.mark.parametrize("call", BLOCKED)
def test_other_calls_block(tmp_path: Path, call: str) -> None:
    found, _ = plan(tmp_path, f"{STATE}from lib import kind, load\nstate = {call}\n")
    assert any(BLOCKED[call] in one.reason for one in found.blockers), found.blockers

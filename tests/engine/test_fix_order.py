"""One run applies the fixes of a migration and of the findings in code that it rewrites."""

from __future__ import annotations

from pathlib import Path

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = FSDP(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 0:
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):
        state = model.state_dict()
    torch.save(state, "model.pt")
dist.destroy_process_group()
"""


def test_a_fix_in_migrated_code_is_applied(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    rules = [rule() for rule in all_rules()]
    first = fix(Workspace([path]), rules)
    announced = {one.rule.code for one in first.checked.found if one.fix is not None}
    assert announced == {"FSDP201", "FSDP202", "FSDP501"}
    assert {one.rule.code for one in first.applied} == announced
    assert not first.remaining
    text = first.texts[path]
    assert "FSDP" not in text
    assert text.index("state = get_model_state_dict(") < text.index("if dist.get_rank() == 0:")
    path.write_text(text, encoding="utf-8")
    assert not fix(Workspace([path]), rules).texts

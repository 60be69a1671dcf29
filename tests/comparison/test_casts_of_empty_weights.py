"""A `param_init_fn` may cast: the migrated program casts the model instead."""

from __future__ import annotations

from pathlib import Path

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.comparing import compare_sides, side

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(0)
with torch.device("meta"):
    model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 4))
if dist.get_rank() == 0:
    model.load_state_dict(torch.load("model.pt"), assign=True)
"""
BEFORE = """
def empty(module):
    module.to_empty(device=torch.cuda.current_device(), recurse=False)
    module.to(torch.bfloat16)


device = torch.cuda.current_device()
function = None if dist.get_rank() == 0 else empty
model = FSDP(model, device_id=device, sync_module_states=True, param_init_fn=function)
"""
AFTER = """
if any(p.is_meta for p in model.parameters()):
    model.to(torch.bfloat16)
full_state = model.state_dict()
fully_shard(model)
if any(p.is_meta for p in model.parameters()):
    model.to_empty(device=torch.cuda.current_device())
options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
set_model_state_dict(model, full_state, options=options)
"""
STEP = """
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 4, dtype=torch.long)).sum().backward()
optimizer.step()
"""


def casts(tmp_path: Path, before: str, after: str) -> list[Outcome]:
    paths = tmp_path / "before.py", tmp_path / "after.py"
    for path, text in zip(paths, (before, after), strict=True):
        path.write_text(HEAD + text + STEP)
    facts = compare_sides(side(paths[0]), side(paths[1])).facts
    return [one.outcome for one in facts if one.topic == "cast of a module"]


def test_a_cast_by_the_function_is_no_difference(tmp_path: Path) -> None:
    assert casts(tmp_path, BEFORE, AFTER) == [Outcome.NOT_FOLLOWED]


def test_a_cast_without_a_function_is_a_difference(tmp_path: Path) -> None:
    before = BEFORE.replace(", param_init_fn=function", "")
    assert casts(tmp_path, before, AFTER) == [Outcome.DIFFERS]

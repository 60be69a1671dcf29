"""A model of unknown origin is sharded where the program uses it as a sharded model."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

from fsdplint import api

HEAD = """\
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, FullStateDictConfig, FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
from torch.nn.parallel import DistributedDataParallel
"""
GUARDED = {
    "static method": """
def save(model, path):
    if dist.get_rank() == 0:
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig()):
            state = model.state_dict()
        torch.save(state, path)
""",
    "annotation": """
def save(model: FSDP, path):
    if dist.get_rank() == 0:
        torch.save(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), path)
""",
    "annotation of FSDP2": """
def save(model: FSDPModule, path):
    if dist.get_rank() == 0:
        torch.save(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), path)
""",
    "method of FSDP2": """
def save(model, batch, path):
    model.set_requires_gradient_sync(False)
    model(batch).sum().backward()
    if dist.get_rank() == 0:
        torch.save(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), path)
""",
    "test of the class": """
def save(model, path):
    if isinstance(model, FSDPModule) and path:
        if dist.get_rank() == 0:
            options = StateDictOptions(full_state_dict=True)
            torch.save(get_model_state_dict(model, options=options), path)
""",
    "attribute": """
class Saver:
    def __init__(self, model):
        self.model = model

    def save(self, path):
        if dist.get_rank() == 0:
            with FSDP.summon_full_params(self.model):
                torch.save(self.model.state_dict(), path)
""",
}
SILENT = {
    "unknown model": """
def save(model, path):
    if dist.get_rank() == 0:
        torch.save(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), path)
""",
    "test of the class that does not hold": """
def save(model, path):
    if not isinstance(model, FSDPModule) and dist.get_rank() == 0:
        torch.save(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), path)
""",
    "data parallel": """
def save(model: DistributedDataParallel, path):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
""",
    "every rank": """
def save(model, path):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig()):
        state = model.state_dict()
    if dist.get_rank() == 0:
        torch.save(state, path)
""",
    "what one rank has called before": """
def step(model, x):
    out = model(x)
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(False)
    out.sum().backward()

def run(model, batch):
    if dist.get_rank() == 0:
        step(model, batch)
    else:
        step(model, None)
""",
    "a caller gives a plain model": """
def save(model: FSDP, path):
    if dist.get_rank() == 0:
        torch.save(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), path)

save(torch.nn.Linear(2, 2), "model.pt")
""",
}


def found(program: str, tmp_path: Path) -> set[str]:
    file = tmp_path / "save.py"
    file.write_text(HEAD + program)
    return {finding.code for finding in api.check([file]).findings}


@pytest.mark.parametrize("name", GUARDED)
def test_a_rank_alone_is_found(name: str, tmp_path: Path) -> None:
    assert "FSDP501" in found(GUARDED[name], tmp_path)


@pytest.mark.parametrize("name", SILENT)
def test_without_evidence_nothing_is_found(name: str, tmp_path: Path) -> None:
    assert not {code for code in found(SILENT[name], tmp_path) if not code.startswith("FSDP2")}


WITH_DDP = """\
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from models import build

dist.init_process_group("nccl")
model = build()
BEFORE
model.set_requires_gradient_sync(True)
if dist.get_rank() == 0:
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
"""


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", True),
        ("other = nn.parallel.DistributedDataParallel(build())", True),
        ("wrapped = nn.parallel.DistributedDataParallel(model)", False),
        ("if args.ddp:\n    wrapped = nn.parallel.DistributedDataParallel(model)", True),
    ],
)
def test_a_model_under_ddp_is_not_assumed_to_be_sharded(
    tmp_path: Path, before: str, expected: bool
) -> None:
    found = findings(program(tmp_path, WITH_DDP.replace("BEFORE", before)), "FSDP501")
    assert bool(found) is expected

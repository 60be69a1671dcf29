"""FSDP303 on `save_pretrained` with a state that only rank 0 has."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullStateDictConfig, StateDictType, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModelForCausalLM

dist.init_process_group("nccl")
rank = dist.get_rank()
model = AutoModelForCausalLM.from_pretrained("small")
"""
FSDP1 = """\
model = FSDP(model)
config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
    state = model.state_dict()
"""
FSDP2 = """\
fully_shard(model)
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=options)
"""


def overwritten(tmp_path: Path, body: str) -> int:
    """The number of findings."""
    file = tmp_path / "main.py"
    file.write_text(HEAD + body)
    rule = rule_by_code("FSDP303")
    assert rule is not None
    return len(check(load([file]), [rule()]))


@pytest.mark.parametrize(
    "save",
    [
        'model.save_pretrained("out", state_dict=state)\n',
        'model.save_pretrained("out", state_dict=state, safe_serialization=False)\n',
        'model.save_pretrained("out", True, state)\n',
        'model.save_pretrained("out", is_main_process=True, state_dict=state)\n',
    ],
)
@pytest.mark.parametrize("shard", [FSDP1, FSDP2])
def test_every_rank_writes(tmp_path: Path, shard: str, save: str) -> None:
    assert overwritten(tmp_path, shard + save) == 1


def test_every_rank_writes_by_the_wrapped_model(tmp_path: Path) -> None:
    save = 'model.module.save_pretrained("out", state_dict=state)\n'
    assert overwritten(tmp_path, FSDP1 + save) == 1


@pytest.mark.parametrize(
    "save",
    [
        'model.save_pretrained("out", is_main_process=rank == 0, state_dict=state)\n',
        'model.save_pretrained("out", rank == 0, state)\n',
        'model.save_pretrained("out", is_main_process=not rank, state_dict=state, '
        "safe_serialization=False)\n",
        'if rank == 0:\n    model.save_pretrained("out", state_dict=state)\n',
        'model.save_pretrained("out", is_main_process=input() == "0", state_dict=state)\n',
    ],
)
@pytest.mark.parametrize("shard", [FSDP1, FSDP2])
def test_the_main_process_writes(tmp_path: Path, shard: str, save: str) -> None:
    assert overwritten(tmp_path, shard + save) == 0

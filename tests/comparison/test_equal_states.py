"""States that two programs take in different ways, and are the same or not."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.comparing import compare_sides, side

HEAD = """\
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_optimizer_state_dict, set_model_state_dict
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import FullStateDictConfig, StateDictType, fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = {0}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model(torch.ones(1, 4)).sum().backward()
optimizer.step()
"""
FSDP1, FSDP2 = "FSDP(torch.nn.Linear(4, 4))", "fully_shard(torch.nn.Linear(4, 4))"
WHOLE = "options=StateDictOptions(full_state_dict=True)"
ON_RANK_0 = "options=StateDictOptions(full_state_dict=True, cpu_offload=True)"

OPTIMIZER = "state = FSDP.full_optim_state_dict(model, optimizer{0})\n"
GATHERED = "state = get_optimizer_state_dict(model, optimizer, {0})\n"

CHOSEN = """\
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
    state = model.state_dict()
torch.save(state, f"{dist.get_rank()}.pt")
"""
WHOLE_MODEL = f"""\
state = get_model_state_dict(model, {WHOLE})
torch.save(state, f"{{dist.get_rank()}}.pt")
"""

NAMES = """\
if dist.get_rank() == 0:
    print([name for name in model.state_dict()])
"""

OWN = """\
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
    state = model.state_dict()
if dist.get_rank() == 0:
    torch.save({"model": state, "optimizer": optimizer.state_dict()}, "all.pt")
"""
OWN_GATHERED = f"""\
state = get_model_state_dict(model, {WHOLE})
optimizer_state = get_optimizer_state_dict(model, optimizer, {ON_RANK_0})
if dist.get_rank() == 0:
    torch.save({{"model": state, "optimizer": optimizer_state}}, "all.pt")
"""

SAVED = """\
with FSDP.state_dict_type(
    model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)
):
    state = model.state_dict()
if dist.get_rank() == 0:
    torch.save(state, "model.pt")
"""
ONE_BY_ONE = """\
state = {}
for name, value in model.state_dict().items():
    value = value.full_tensor()
    if dist.get_rank() == 0:
        state[name] = value.cpu()
if dist.get_rank() == 0:
    torch.save(state, "model.pt")
"""
NOTHING = """\
state = model.state_dict()
if dist.get_rank() == 0:
    torch.save({}, "model.pt")
"""

INNER = """\
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
    state = model.module.state_dict()
torch.save(state, "model.pt")
"""
INNER_LOADED = """\
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
    model.module.load_state_dict(torch.load("model.pt"))
"""
LOADED = f"""\
set_model_state_dict(model, torch.load("model.pt"), {WHOLE})
"""


def differences(folder: Path, before: tuple[str, str], after: tuple[str, str]) -> list[str]:
    sides = []
    for name, (model, rest) in {"before.py": before, "after.py": after}.items():
        text = HEAD.replace("{0}", model) + textwrap.dedent(rest)
        (folder / name).write_text(text, encoding="utf-8")
        sides.append(side(folder / name))
    facts = compare_sides(*sides).facts
    found = [one.topic for one in facts if one.outcome is Outcome.DIFFERS]
    return [topic for topic in found if "state" in topic or "content" in topic]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            (FSDP1, OPTIMIZER.format(", rank0_only=False")),
            (FSDP2, GATHERED.format(WHOLE)),
            id="an optimizer's state on all ranks",
        ),
        pytest.param(
            (FSDP1, OPTIMIZER.format("")),
            (FSDP2, GATHERED.format(ON_RANK_0)),
            id="an optimizer's state on rank 0",
        ),
        pytest.param(
            (FSDP2, CHOSEN), (FSDP2, WHOLE_MODEL), id="a type that has no effect on FSDP2"
        ),
        pytest.param((FSDP1, CHOSEN), (FSDP2, WHOLE_MODEL + NAMES), id="names that one rank reads"),
        pytest.param(
            (FSDP1, OWN), (FSDP2, OWN_GATHERED), id="the optimizer's state that rank 0 takes"
        ),
        pytest.param((FSDP1, SAVED), (FSDP2, ONE_BY_ONE), id="tensors gathered one by one"),
        pytest.param(
            (FSDP1, INNER),
            (FSDP2, WHOLE_MODEL.replace('f"{dist.get_rank()}.pt"', '"model.pt"')),
            id="the inner module's state in a block for whole states",
        ),
        pytest.param(
            (FSDP1, INNER_LOADED), (FSDP2, LOADED), id="a whole state for the inner module"
        ),
    ],
)
def test_the_states_are_the_same(
    before: tuple[str, str], after: tuple[str, str], tmp_path: Path
) -> None:
    assert differences(tmp_path, before, after) == []


@pytest.mark.parametrize(
    ("before", "after", "topic"),
    [
        pytest.param(
            (FSDP1, OPTIMIZER.format("")),
            (FSDP2, GATHERED.format(WHOLE)),
            "state is only on rank 0",
            id="the other ranks get the optimizer's state",
        ),
        pytest.param(
            (FSDP1, CHOSEN),
            (FSDP2, CHOSEN),
            "state taken",
            id="a type that has no effect is left",
        ),
        pytest.param(
            (FSDP1, CHOSEN),
            (FSDP2, 'torch.save(model.state_dict(), f"{dist.get_rank()}.pt")\n'),
            "state taken",
            id="shards are saved",
        ),
        pytest.param(
            (FSDP1, OWN_GATHERED),
            (
                FSDP2,
                OWN_GATHERED.replace(
                    "optimizer_state = get", "if dist.get_rank() == 0:\n    optimizer_state = get"
                ),
            ),
            "state is taken",
            id="one rank gathers the optimizer's state",
        ),
        pytest.param(
            (FSDP1, SAVED), (FSDP2, NOTHING), "content of a file", id="an empty dict is saved"
        ),
        pytest.param(
            (FSDP1, INNER_LOADED),
            (FSDP2, LOADED.replace(WHOLE, "")),
            "state loaded",
            id="a whole state for the inner module becomes a sharded one",
        ),
    ],
)
def test_the_states_differ(
    before: tuple[str, str], after: tuple[str, str], topic: str, tmp_path: Path
) -> None:
    assert topic in differences(tmp_path, before, after)

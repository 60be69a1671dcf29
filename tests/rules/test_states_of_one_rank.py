"""FSDP310 on the state of a plain model that one rank takes before the model is sharded."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
{take}
for layer in model:
    fully_shard(layer)
fully_shard(model)
options = StateDictOptions(full_state_dict=True, {option})
set_model_state_dict(model, state, options=options)
"""


SAVED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import *
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
main = rank == 0
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
options = StateDictOptions(full_state_dict=True, broadcast_from_rank0={sends})
{lines}
"""


def not_broadcast(tmp_path: Path, take: str, option: str) -> int:
    """The number of findings."""
    return found_in(tmp_path, PROGRAM.format(take=take, option=option))


def found_in(tmp_path: Path, text: str) -> int:
    file = tmp_path / "main.py"
    file.write_text(text)
    rule = rule_by_code("FSDP310")
    assert rule is not None
    return len(check(load([file]), [rule()]))


TAKEN = [
    "state = {}\nif rank == 0:\n    state = model.state_dict()",
    "state = None\nif not rank:\n    state = model.state_dict()",
    "state = model.state_dict() if rank == 0 else {}",
    "def take():\n    if rank != 0:\n        return {}\n    return model.state_dict()\nstate = take()",
]


@pytest.mark.parametrize("take", TAKEN)
def test_a_state_of_one_rank(tmp_path: Path, take: str) -> None:
    assert not_broadcast(tmp_path, take, "strict=False") == 1


@pytest.mark.parametrize("take", TAKEN)
def test_a_state_that_is_broadcast(tmp_path: Path, take: str) -> None:
    assert not_broadcast(tmp_path, take, "broadcast_from_rank0=True") == 0


def test_a_state_of_all_ranks(tmp_path: Path) -> None:
    assert not_broadcast(tmp_path, "state = model.state_dict()", "strict=False") == 0


FILLED = [
    "state = {}\nif rank == 0:\n    for name, value in read().items():\n        state[name] = value",
    "state = {}\nif rank == 0:\n    state.update(read())",
    "state = dict()\nif rank == 0:\n    state |= {name: value for name, value in read().items()}",
    "state = {}\nif rank == 0:\n    state = {name: value for name, value in read().items()}",
    "state = {name: value for name, value in read().items()} if rank == 0 else {}",
    "state = read() if rank == 0 else {}",
    "def take():\n    if rank != 0:\n        return {}\n    return read()\nstate = take()",
    "class Weights:\n    def __init__(self):\n        self.state = {}\n        if rank == 0:\n"
    "            self.state['0.weight'] = read()['0.weight']\nstate = Weights().state",
    "found = {}\nif rank == 0:\n    found.update(read())\nstate = dict(found)",
]


@pytest.mark.parametrize("take", FILLED)
def test_a_dict_that_one_rank_fills(tmp_path: Path, take: str) -> None:
    take = f"from files import read\n{take}"
    assert not_broadcast(tmp_path, take, "strict=False") == 1
    assert not_broadcast(tmp_path, take, "broadcast_from_rank0=True") == 0


@pytest.mark.parametrize(
    "take",
    [
        "state = {}\nfor name, value in read().items():\n    state[name] = value",
        "state = read() if rank == 0 else {}\nobjects = [state]\n"
        "dist.broadcast_object_list(objects)\nstate = objects[0]",
        "state = {}\nif rank == 0:\n    state.update(read())\nobjects = [state]\n"
        "dist.broadcast_object_list(objects)\nstate = objects[0]",
        "state = {}\nif rank == 0:\n    state.update(read())\nsend(state)",
        "state = {}\nif rank == 0:\n    state.update(read())\nfor name in names:\n"
        "    state[name] = send(state.get(name))",
        "state = {}\nif rank == 0:\n    state.update(read())\nelse:\n    state.update(receive())",
        "state = read() if rank == 0 else receive()",
        "state = {}\nif not rank:\n    print('nothing to load')",
    ],
)
def test_a_dict_that_all_ranks_have(tmp_path: Path, take: str) -> None:
    take = f"from files import names, read, receive, send\n{take}"
    assert not_broadcast(tmp_path, take, "strict=False") == 0


READ = [
    "saved = torch.load('f.pt')\nstate, other = (saved['m'], saved['o']) if main else ({}, {})",
    "saved = torch.load('f.pt')\nstate = saved['m'] if rank == 0 else {}\nother = {}",
    "saved = torch.load('f.pt') if main else {'m': {}, 'o': {}}\nstate, other = saved['m'], saved['o']",
    "state, other = {}, {}\nif main:\n    saved = torch.load('f.pt')\n"
    "    state, other = saved['m'], saved['o']",
    "def read():\n    if dist.get_rank():\n        return {}, {}\n    saved = torch.load('f.pt')\n"
    "    return saved['m'], saved['o']\nstate, other = read()",
    "state = {}\nother = {}\nif main:\n    state.update(torch.load('f.pt')['m'])",
]
TOGETHER = (
    "set_state_dict(model, optimizer, model_state_dict=state, optim_state_dict=other, "
    "options=options)"
)


@pytest.mark.parametrize("read", READ)
def test_a_model_that_the_other_ranks_skip(tmp_path: Path, read: str) -> None:
    assert found_in(tmp_path, SAVED.format(sends=True, lines=f"{read}\n{TOGETHER}")) == 1


@pytest.mark.parametrize("read", READ)
def test_states_that_are_set_one_by_one(tmp_path: Path, read: str) -> None:
    calls = (
        "set_model_state_dict(model, state, options=options)\n"
        "set_optimizer_state_dict(model, optimizer, other, options=options)"
    )
    assert found_in(tmp_path, SAVED.format(sends=True, lines=f"{read}\n{calls}")) == 0


@pytest.mark.parametrize(
    "read",
    [
        "saved = torch.load('f.pt')\nstate, other = saved['m'], saved['o']",
        "saved = torch.load('f.pt')\nstate, other = saved['m'], saved['o'] if main else {}",
        "saved = [torch.load('f.pt') if main else {}]\ndist.broadcast_object_list(saved)\n"
        "state, other = saved[0]['m'], saved[0]['o']",
        "saved = torch.load('f.pt')\nstate, other = saved['m'] if rank < 4 else {}, saved['o']",
    ],
)
def test_a_model_that_no_rank_skips(tmp_path: Path, read: str) -> None:
    assert found_in(tmp_path, SAVED.format(sends=True, lines=f"{read}\n{TOGETHER}")) == 0

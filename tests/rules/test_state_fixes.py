"""Fixes of saved and loaded states in more shapes than the rules' examples have."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.registry.rule import Rule
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard

args = argparse.ArgumentParser().parse_args()
dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
"""
# A file of an optimizer's whole tensors, which only this program's own save shows.
GATHERED = """\
options = StateDictOptions(full_state_dict=True)
state = get_optimizer_state_dict(model, optimizer, options=options)
if dist.get_rank() == 0:
    torch.save({"o": state}, "c.pt")
"""


def rule(code: str) -> Rule:
    found = rule_by_code(code)
    assert found is not None
    return found()


def fixed(code: str, body: str, folder: Path) -> str | None:
    """What the fix of a rule makes of a program's end; None where it changes nothing."""
    path = folder / "train.py"
    path.write_text(HEAD + body)
    assert check(load([path]), [rule(code)])
    text = fix(Workspace([path], unsafe=True), [rule(code)]).texts.get(path)
    if text is None:
        return None
    assert text.startswith(HEAD)
    return text[len(HEAD) :]


SAVED = {
    "a dict made before": (
        """\
checkpoint = {
    "model": model.state_dict(),
    "optimizer": optimizer.state_dict(),
}
checkpoint["step"] = 1
if dist.get_rank() == 0:
    torch.save(checkpoint, "c.pt")
""",
        """\
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
checkpoint = {
    "model": get_model_state_dict(model, options=options),
    "optimizer": get_optimizer_state_dict(model, optimizer, options=options),
}
checkpoint["step"] = 1
if dist.get_rank() == 0:
    torch.save(checkpoint, "c.pt")
""",
    ),
    "two files": (
        """\
if dist.get_rank() == 0:
    torch.save(model.state_dict(), "m.pt")
    torch.save(optimizer.state_dict(), "o.pt")
""",
        """\
model_state = get_model_state_dict(
    model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
)
optimizer_state = get_optimizer_state_dict(
    model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
)
if dist.get_rank() == 0:
    torch.save(model_state, "m.pt")
    torch.save(optimizer_state, "o.pt")
""",
    ),
    "a file that is opened": (
        """\
with open("m.pt", "wb") as file:
    torch.save(model.state_dict(), file)
""",
        """\
model_state = get_model_state_dict(
    model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
)
if dist.get_rank() == 0:
    with open("m.pt", "wb") as file:
        torch.save(model_state, file)
""",
    ),
    "another condition besides the rank": (
        """\
for step in range(4):
    if step % 1000 == 0 and dist.get_rank() == 0:
        torch.save(model.state_dict(), "m.pt")
""",
        """\
for step in range(4):
    if step % 1000 == 0:
        model_state = get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
    if step % 1000 == 0 and dist.get_rank() == 0:
        torch.save(model_state, "m.pt")
""",
    ),
    "another condition of each rank's own": (
        """\
for step in range(4):
    if model(torch.randn(4, 8)).sum().item() < 1 and dist.get_rank() == 0:
        torch.save(model.state_dict(), "m.pt")
""",
        None,
    ),
    "one of several models": (
        """\
if dist.get_rank() == 0:
    torch.save({name: part.state_dict() for name, part in {"m": model}.items()}, "m.pt")
""",
        None,
    ),
    "one of several models, on all ranks": (
        'torch.save({name: part.state_dict() for name, part in {"m": model}.items()}, "m.pt")\n',
        None,
    ),
    "perhaps not taken": (
        """\
if dist.get_rank() == 0:
    torch.save({"m": model.state_dict() if args.weights else None}, "m.pt")
""",
        None,
    ),
    "perhaps not taken, on all ranks": (
        'torch.save({"m": model.state_dict() if args.weights else None}, "m.pt")\n',
        None,
    ),
    "on all ranks in one configuration only": (
        """\
if args.all or dist.get_rank() == 0:
    torch.save(model.state_dict(), "m.pt")
""",
        None,
    ),
    "attributes": (
        """\
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def save(self):
        torch.save({"o": self.optimizer.state_dict(), "m": self.model.state_dict()}, "c.pt")


Trainer(model, optimizer).save()
""",
        """\
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def save(self):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        optimizer_state = get_optimizer_state_dict(self.model, self.optimizer, options=options)
        model_state = get_model_state_dict(self.model, options=options)
        if dist.get_rank() == 0:
            torch.save({"o": optimizer_state, "m": model_state}, "c.pt")


Trainer(model, optimizer).save()
""",
    ),
    "the state is used as it is": (
        """\
state = model.state_dict()
print(state["0.weight"].to_local().shape)
if dist.get_rank() == 0:
    torch.save(state, "m.pt")
""",
        None,
    ),
    "the state comes from another function": (
        """\
def snapshot():
    return {"model": model.state_dict()}


if dist.get_rank() == 0:
    torch.save(snapshot(), "m.pt")
""",
        None,
    ),
    "a function that saves on rank 0": (
        """\
def save_on_master(obj, path):
    if dist.get_rank() == 0:
        torch.save(obj, path)


def save(model, optimizer, epoch):
    checkpoint = {"model": model.state_dict(), "opt": optimizer.state_dict(), "epoch": epoch}
    save_on_master(checkpoint, f"c{epoch}.pt")


save(model, optimizer, 1)
""",
        """\
def save_on_master(obj, path):
    if dist.get_rank() == 0:
        torch.save(obj, path)


def save(model, optimizer, epoch):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model_state = get_model_state_dict(model, options=options)
    optimizer_state = get_optimizer_state_dict(model, optimizer, options=options)
    checkpoint = {"model": model_state, "opt": optimizer_state, "epoch": epoch}
    save_on_master(checkpoint, f"c{epoch}.pt")


save(model, optimizer, 1)
""",
    ),
    "a getter without options": (
        """\
state = get_optimizer_state_dict(model, optimizer)
if dist.get_rank() == 0:
    torch.save(state, "o.pt")
""",
        """\
state = get_optimizer_state_dict(
    model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
)
if dist.get_rank() == 0:
    torch.save(state, "o.pt")
""",
    ),
    "a getter with other options": (
        """\
state = get_model_state_dict(model, options=StateDictOptions(cpu_offload=True))
if dist.get_rank() == 0:
    torch.save(state, "o.pt")
""",
        None,
    ),
    "a function that saves on every rank": (
        """\
def save(obj, path):
    torch.save(obj, path)


save(model.state_dict(), "m.pt")
""",
        None,
    ),
    "perhaps a test of the rank": (
        """\
if args.primary:
    torch.save(model.state_dict(), "m.pt")
""",
        None,
    ),
    "a name that is taken": (
        """\
model_state = "best"
torch.save({model_state: model.state_dict()}, "m.pt")
""",
        """\
model_state = "best"
model_state2 = get_model_state_dict(
    model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
)
if dist.get_rank() == 0:
    torch.save({model_state: model_state2}, "m.pt")
""",
    ),
}


@pytest.mark.parametrize("case", SAVED.values(), ids=SAVED.keys())
def test_saving(case: tuple[str, str | None], tmp_path: Path) -> None:
    before, after = case
    assert fixed("FSDP301", before, tmp_path) == after


LOADED = {
    "by keyword": (
        'model.load_state_dict(state_dict=torch.load("m.pt"), strict=True)\n',
        "set_model_state_dict(\n"
        '    model, torch.load("m.pt"), options=StateDictOptions(full_state_dict=True)\n)\n',
    ),
    "strict by position": (
        'state = torch.load("m.pt")\nmodel.load_state_dict(state, args.strict)\n',
        'state = torch.load("m.pt")\nset_model_state_dict(\n'
        "    model, state, options=StateDictOptions(full_state_dict=True, strict=args.strict)\n)\n",
    ),
    "what only rank 0 has": (
        "options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
        "state = get_model_state_dict(model, options=options)\nmodel.load_state_dict(state)\n",
        "options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
        "state = get_model_state_dict(model, options=options)\nset_model_state_dict(\n"
        "    model,\n    state,\n"
        "    options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),\n)\n",
    ),
    "on some ranks": (
        'if dist.get_rank() == 0:\n    model.load_state_dict(torch.load("m.pt"))\n',
        None,
    ),
    "an optimizer": (
        f'{GATHERED}checkpoint = torch.load("c.pt")\noptimizer.load_state_dict(checkpoint["o"])\n',
        f'{GATHERED}checkpoint = torch.load("c.pt")\nset_optimizer_state_dict(\n'
        '    model, optimizer, checkpoint["o"], options=StateDictOptions(full_state_dict=True)\n)\n',
    ),
}


@pytest.mark.parametrize("case", LOADED.values(), ids=LOADED.keys())
def test_loading(case: tuple[str, str | None], tmp_path: Path) -> None:
    before, after = case
    assert fixed("FSDP302", before, tmp_path) == after


def test_an_optimizer_of_parameters_that_no_rank_shards(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy

dist.init_process_group("nccl")
model = FSDP(nn.Linear(8, 8), sharding_strategy=ShardingStrategy.NO_SHARD)
optimizer = torch.optim.AdamW(model.parameters())
if dist.get_rank() == 0:
    torch.save(optimizer.state_dict(), "o.pt")
"""
    )
    assert check(load([path]), [rule("FSDP301")]) == []
    path.write_text(path.read_text().replace("NO_SHARD", "FULL_SHARD"))
    assert len(check(load([path]), [rule("FSDP301")])) == 1

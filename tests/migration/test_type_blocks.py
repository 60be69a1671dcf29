"""A type of state dicts that the program sets, and then sets back to the earlier one."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

SET = "FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True))"
BACK = (
    "FSDP.set_state_dict_type(\n    model, old.state_dict_type, old.state_dict_config, "
    "old.optim_state_dict_config\n)"
)
NAMED = (
    "FSDP.set_state_dict_type(module=model, state_dict_type=old.state_dict_type, "
    "optim_state_dict_config=old.optim_state_dict_config, state_dict_config=old.state_dict_config)"
)
FORMS = {
    "returned": f"old = {SET}\n# whole\nstate = model.state_dict()\n\n{BACK}\n",
    "asked for": f"old = FSDP.get_state_dict_type(model)\n{SET}\nstate = model.state_dict()\n{NAMED}\n",
    "in the end": (
        f"old = {SET}\ntry:\n    state = model.state_dict()\nfinally:\n"
        f"{textwrap.indent(BACK, '    ')}\n"
    ),
    "within the try": (
        f"old = FSDP.get_state_dict_type(model)\ntry:\n    {SET}\n    state = model.state_dict()\n"
        f"finally:\n    {NAMED}\n"
    ),
}
HELPER = """
import contextlib


class Saver:
    def __init__(self, model):
        self.model = model

    @contextlib.contextmanager
    def full(self, rank0_only):
        old = FSDP.set_state_dict_type(
            self.model,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(rank0_only=rank0_only),
            FullOptimStateDictConfig(rank0_only=rank0_only),
        )
        try:
            yield
        finally:
            FSDP.set_state_dict_type(
                self.model, old.state_dict_type, old.state_dict_config, old.optim_state_dict_config
            )

    def take(self):
        with self.full(rank0_only=True):
            return self.model.state_dict()


model = FSDP(Net(), use_orig_params=True)
print(Saver(model).take())
"""


@pytest.mark.parametrize("body", list(FORMS.values()), ids=list(FORMS))
def test_a_type_that_is_set_back(tmp_path: Path, body: str) -> None:
    after = migrated(tmp_path, f"model = FSDP(Net(), use_orig_params=True)\n{body}print(state)\n")
    assert "get_model_state_dict( model, options=StateDictOptions(full_state_dict=True" in " ".join(
        after.split()
    )
    assert "old" not in after
    assert after.count("# whole") == body.count("# whole")


def test_a_function_that_yields_between(tmp_path: Path) -> None:
    after = migrated(tmp_path, HELPER)
    assert "get_model_state_dict(self.model, options=StateDictOptions(full_state_dict=True" in (
        " ".join(after.split()).replace("( ", "(")
    )
    assert "contextmanager" not in after


SET_BEFORE = """
model = FSDP(Net(), use_orig_params=True)
FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
"""


def test_the_earlier_type_holds_again(tmp_path: Path) -> None:
    after = migrated(
        tmp_path, SET_BEFORE + FORMS["returned"] + "print(state, model.state_dict())\n"
    )
    assert "print(state, get_model_state_dict(model))" in after
    assert after.count("full_state_dict=True") == 1


BLOCKED = {
    "another model": FORMS["returned"].replace("    model, old", "    other, old"),
    "other uses": FORMS["returned"] + "print(old.state_dict_type)\n",
    "another config": FORMS["returned"].replace("old.state_dict_config", "FullStateDictConfig()"),
    "left early": (
        "def take(model, early):\n"
        + textwrap.indent(
            FORMS["returned"].replace("# whole", "if early:\n    return model.state_dict()"), "    "
        )
        + "    return state\nstate = take(model, False)\n"
    ),
}


@pytest.mark.parametrize("body", list(BLOCKED.values()), ids=list(BLOCKED))
def test_other_uses_of_the_earlier_type_block(tmp_path: Path, body: str) -> None:
    head = "model, other = FSDP(Net()), FSDP(Net())\n"
    found, _ = plan(tmp_path, head + body + "print(state)\n")
    assert found.blockers


PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import (
    FullOptimStateDictConfig, FullStateDictConfig, FullyShardedDataParallel as FSDP,
    ShardedStateDictConfig, StateDictType,
)

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 7), nn.Tanh(), nn.Linear(7, 1))
model = FSDP(net, device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig())


def save():
    old = FSDP.set_state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(rank0_only=True),
        FullOptimStateDictConfig(rank0_only=True),
    )
    try:
        weights = model.state_dict()
        state = FSDP.optim_state_dict(model, optimizer)
    finally:
        FSDP.set_state_dict_type(
            model, old.state_dict_type, old.state_dict_config, old.optim_state_dict_config
        )
    return weights, state


for step in range(3):
    model(torch.full((2, 8), 1.0 + step + dist.get_rank())).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
weights, state = save()
if dist.get_rank() == 0:
    for name, value in weights.items():
        print(name, f"{value.sum().item():.5f}")
    for name, values in sorted(state["state"].items()):
        print(name, f"{values['exp_avg'].sum().item():.5f}")
part = model.state_dict()["0.weight"]
if dist.get_rank() == 0:
    print(type(part).__name__)
dist.destroy_process_group()
"""


def test_the_states_are_those_of_fsdp1(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FSDP." not in after
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == new.status == "ok", f"{old.error}\n{new.error}"
    assert new.stdout.replace("DTensor", "Tensor") == old.stdout.replace("ShardedTensor", "Tensor")

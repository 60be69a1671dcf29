"""States of optimizers whose type `set_state_dict_type` sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

FORMS = {
    "in a script": (
        """
model = FSDP(Net(), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
state = FSDP.optim_state_dict(model, optimizer)
optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state))
""",
        ["optimizer, options=StateDictOptions(cpu_offload=True)", "(model, optimizer, state)"],
    ),
    "in a constructor": (
        """
class Saver:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        FSDP.set_state_dict_type(self.model, StateDictType.SHARDED_STATE_DICT)

    def take(self):
        return FSDP.optim_state_dict(self.model, self.optimizer)


net = FSDP(Net(), use_orig_params=True)
print(Saver(net, torch.optim.AdamW(net.parameters())).take())
""",
        ["options=StateDictOptions(cpu_offload=True)"],
    ),
    "of one of two models": (
        """
model = FSDP(Net(), use_orig_params=True)
other = FSDP(Net(), use_orig_params=True)
first = torch.optim.AdamW(model.parameters())
second = torch.optim.AdamW(other.parameters())
FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
state = FSDP.optim_state_dict(model, first)
whole = FSDP.optim_state_dict(other, second)
""",
        [
            "first, options=StateDictOptions(cpu_offload=True)",
            "second, options=StateDictOptions(full_state_dict=True)",
        ],
    ),
    "a full state by its own function": (
        """
model = FSDP(Net(), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
state = FSDP.full_optim_state_dict(model, optimizer)
""",
        ["options=StateDictOptions(full_state_dict=True, cpu_offload=True)"],
    ),
    "a full state whose device is decided elsewhere": (
        """
class Saver:
    def __init__(self, model, optimizer, device):
        self.model, self.optimizer = model, optimizer
        FSDP.set_state_dict_type(
            self.model,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(offload_to_cpu=device != "cpu", rank0_only=True),
            FullOptimStateDictConfig(offload_to_cpu=device != "cpu", rank0_only=True),
        )

    def save(self):
        weights = self.model.state_dict()
        state = FSDP.optim_state_dict(self.model, self.optimizer)
        if dist.get_rank() == 0:
            torch.save((weights, state), "x.pt")


net = FSDP(Net(), use_orig_params=True)
Saver(net, torch.optim.AdamW(net.parameters()), os.environ.get("DEVICE", "cpu")).save()
""",
        [
            "get_model_state_dict( self.model, options=StateDictOptions(full_state_dict=True, "
            "cpu_offload=True) )",
            "get_optimizer_state_dict( self.model, self.optimizer, "
            "options=StateDictOptions(full_state_dict=True, cpu_offload=True), )",
        ],
    ),
}


@pytest.mark.parametrize(("body", "expected"), list(FORMS.values()), ids=list(FORMS))
def test_the_type_holds_for_the_state(tmp_path: Path, body: str, expected: list[str]) -> None:
    text = " ".join(migrated(tmp_path, body).split())
    assert [one for one in expected if one not in text] == []


PROGRAM = """\
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


def step(number):
    loss = model(torch.full((2, 8), float(number + dist.get_rank()))).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.5f}")


dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
model = FSDP(net, use_orig_params=True, device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
step(0)
state = copy.deepcopy(FSDP.optim_state_dict(model, optimizer))
step(1)
optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state))
step(2)
step(3)
dist.destroy_process_group()
"""


def test_training_goes_on_as_before(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    text = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "full_state_dict" not in text
    before, after = two_ranks.run(PROGRAM), two_ranks.run(text)
    assert before.status == after.status == "ok", f"{before}\n{after}"
    assert before.stdout.count("loss") == 8
    assert after.stdout == before.stdout


HELPER = """
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(model):
    return FSDP(model)
"""
SETS = """
import torch.distributed as dist
import torch.nn as nn
from helper import wrap
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType

dist.init_process_group("gloo")
model = wrap(nn.Linear(8, 8))
FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
state = model.state_dict()
"""
TAKES = """
import torch.distributed as dist
import torch.nn as nn
from helper import wrap


def take(model):
    return model.state_dict()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print(take(wrap(nn.Linear(8, 8))))
"""


def test_a_type_of_another_program_is_not_used(tmp_path: Path) -> None:
    for name, text in {"helper": HELPER, "sets": SETS, "takes": TAKES}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    texts = fix(
        Workspace([tmp_path / f"{name}.py" for name in ("helper", "sets", "takes")]),
        [rule() for rule in all_rules()],
    ).texts
    assert "state = get_model_state_dict(model)\n" in texts[tmp_path / "sets.py"]
    assert "full_state_dict=True" in texts[tmp_path / "takes.py"]


def test_a_type_of_an_importing_program_is_used(tmp_path: Path) -> None:
    sets = SETS.replace(
        "from helper import wrap\n", "from helper import wrap\nfrom takes import take\n"
    )
    sets = sets.replace("model.state_dict()", "take(model)")
    takes = TAKES.partition("\n\nif __name__")[0] + "\n"
    for name, text in {"helper": HELPER, "sets": sets, "takes": takes}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    texts = fix(
        Workspace([tmp_path / f"{name}.py" for name in ("helper", "sets", "takes")]),
        [rule() for rule in all_rules()],
    ).texts
    assert "return get_model_state_dict(model)\n" in texts[tmp_path / "takes.py"]


def test_a_local_state_that_is_only_saved_is_an_unsafe_change(tmp_path: Path) -> None:
    body = """
    model = FSDP(Net(), use_orig_params=True)
    FSDP.set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT)
    torch.save(model.state_dict(), f"{dist.get_rank()}.pt")
    """
    found, text = plan(tmp_path, body)
    assert "torch.save(get_model_state_dict(model), " in text
    assert [note.unsafe for note in found.notes if "a sharded state" in note.text] == [True]

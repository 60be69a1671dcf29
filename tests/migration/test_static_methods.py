"""Static methods of FSDP1's class that a program calls on the wrapped model."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

FORMS = {
    "a block": (
        """
        model = FSDP(Net())
        with model.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            state = model.state_dict()
        """,
        ["state = get_model_state_dict(model)"],
    ),
    "an attribute of an object": (
        """
        class Trainer:
            def __init__(self):
                self.net = FSDP(Net())
                self.optimizer = torch.optim.Adam(self.net.parameters())

            def state(self):
                return self.net.optim_state_dict(self.net, self.optimizer)


        Trainer().state()
        """,
        ["return get_optimizer_state_dict(\n            self.net, self.optimizer,"],
    ),
    "the class of the model": (
        """
        model = FSDP(Net())
        with type(model).state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            state = model.state_dict()
        """,
        ["state = get_model_state_dict(model)"],
    ),
    "the model's attribute with its class": (
        """
        model = FSDP(Net())
        kind = StateDictType.SHARDED_STATE_DICT
        with model.__class__.state_dict_type(module=model, state_dict_type=kind):
            state = model.state_dict()
        """,
        ["state = get_model_state_dict(model)"],
    ),
    "a type that is set": (
        """
        model = FSDP(Net())
        model.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
        state = model.state_dict()
        """,
        ["state = get_model_state_dict(model)"],
    ),
    "a subclass": (
        """
        class Mine(FSDP):
            def weights(self):
                config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
                with self.state_dict_type(self, StateDictType.FULL_STATE_DICT, config):
                    return self.state_dict()


        model = Mine(Net())
        torch.save(model.weights(), "net.pt")
        """,
        ["def weights(model):", "get_model_state_dict("],
    ),
}


@pytest.mark.parametrize(("body", "expected"), list(FORMS.values()), ids=list(FORMS))
def test_the_method_of_the_class(tmp_path: Path, body: str, expected: list[str]) -> None:
    text = migrated(tmp_path, textwrap.dedent(body))
    assert [one for one in expected if one not in text] == []


def test_a_model_of_two_classes_blocks(tmp_path: Path) -> None:
    body = """
        wrap_net = FSDP if os.environ.get("FSDP") else nn.parallel.DistributedDataParallel
        model = wrap_net(Net())
        with model.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            state = model.state_dict()
    """
    assert plan(tmp_path, textwrap.dedent(body))[0].blockers


PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel, FullStateDictConfig, StateDictType


class Adapted(FullyShardedDataParallel):
    def weights(self):
        config = FullStateDictConfig(rank0_only=True)
        with self.state_dict_type(self, StateDictType.FULL_STATE_DICT, config):
            return {key: value.clone() for key, value in self.state_dict().items()}

    def load(self, state):
        with type(self).state_dict_type(self, StateDictType.FULL_STATE_DICT):
            full = self.state_dict()
            full.update(state)
            return self.load_state_dict(full)


dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
model = Adapted(net, device_id=torch.device("cpu"))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(3):
    loss = model(torch.full((2, 8), float(step + dist.get_rank()))).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
box = [model.weights() if dist.get_rank() == 0 else (model.weights(), None)[1]]
dist.broadcast_object_list(box)
model.load({"0.weight": box[0]["0.weight"] * 0.5})
print(len(model.optim_state_dict(model, optimizer)["state"]))
print(f"{loss.item():.6f} {model(torch.ones(2, 8)).sum().item():.6f}")
dist.destroy_process_group()
"""


def test_the_program_gives_the_same_numbers(tmp_path: Path, two_ranks: TwoRanks) -> None:
    found, after = plan(tmp_path, PROGRAM, head="")
    assert not found.blockers, [one.reason for one in found.blockers]
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == new.status == "ok", f"{old.error}\n{new.error}"
    assert new.stdout == old.stdout

"""States of optimizers that are taken or loaded after a forward without a backward."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

HEAD = """
class Headed(Net):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(super().forward(x))


model = FSDP(Headed(), auto_wrap_policy=ModuleWrapPolicy({Block}))
optimizer = torch.optim.Adam(model.parameters())
"""
STEP = "model(torch.ones(2, 8)).sum().backward()\noptimizer.step()\noptimizer.zero_grad()\n"
EVALUATION = "with torch.no_grad():\n    model(torch.ones(2, 8))\n"
RESHARD = "model.reshard()\n"

FORMS = {
    "after an evaluation": (STEP + EVALUATION + "FSDP.optim_state_dict(model, optimizer)\n", 1),
    "after a step": (STEP + "FSDP.optim_state_dict(model, optimizer)\n", 0),
    "after the model's state": (
        STEP
        + EVALUATION
        + "torch.save(model.state_dict(), 'm.pt')\nFSDP.optim_state_dict(model, optimizer)\n",
        0,
    ),
    "before the model's state": (
        STEP
        + EVALUATION
        + "state = [FSDP.full_optim_state_dict(model, optimizer), model.state_dict()]\n",
        1,
    ),
    "two states": (
        STEP
        + EVALUATION
        + "one = FSDP.optim_state_dict(model, optimizer)\n"
        + "two = FSDP.sharded_optim_state_dict(model, optimizer)\n",
        1,
    ),
    "at the start of the next iteration": (
        "for epoch in range(3):\n"
        + textwrap.indent(
            "if epoch:\n    state = FSDP.optim_state_dict(model, optimizer)\n" + STEP + EVALUATION,
            "    ",
        ),
        1,
    ),
    "loaded after an evaluation": (
        EVALUATION
        + "state = torch.load('o.pt')\n"
        + "state = FSDP.optim_state_dict_to_load(model, optimizer, state)\n"
        + "optimizer.load_state_dict(state)\n",
        1,
    ),
    "the model's weights": (
        STEP + EVALUATION + "model.load_state_dict(torch.load('m.pt'))\n",
        1,
    ),
    "the model's weights after a step": (
        EVALUATION + STEP + "model.load_state_dict(torch.load('m.pt'))\n",
        0,
    ),
    "the model's sharded weights": (
        EVALUATION
        + "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
        + "    model.load_state_dict(model.state_dict())\n",
        0,
    ),
    "the model's weights and the optimizer's state": (
        EVALUATION
        + "model.load_state_dict(torch.load('m.pt'))\n"
        + "state = FSDP.optim_state_dict_to_load(model, optimizer, torch.load('o.pt'))\n"
        + "optimizer.load_state_dict(state)\n",
        1,
    ),
    "in functions": (
        textwrap.dedent(
            """
            @torch.no_grad()
            def evaluate(model):
                return model(torch.ones(2, 8)).sum()


            def save(model, optimizer):
                with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                    return FSDP.optim_state_dict(model, optimizer)


            """
        )
        + STEP
        + "evaluate(model)\nsave(model, optimizer)\n",
        1,
    ),
    "one rank's part that is saved as the whole state": (
        STEP + EVALUATION + "torch.save(optimizer.state_dict(), 'o.pt')\n",
        1,
    ),
    "of a root without parameters of its own": (
        "model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))\n"
        + "optimizer = torch.optim.Adam(model.parameters())\n"
        + STEP
        + EVALUATION
        + "FSDP.optim_state_dict(model, optimizer)\n",
        0,
    ),
}


@pytest.mark.parametrize(("body", "count"), list(FORMS.values()), ids=list(FORMS))
def test_the_model_is_sharded_again_if_needed(tmp_path: Path, body: str, count: int) -> None:
    text = migrated(tmp_path, HEAD + body)
    assert text.count(RESHARD) == count


def test_all_modules_that_stay_gathered_are_sharded(tmp_path: Path) -> None:
    head = HEAD.replace("FSDP(Headed(),", "FSDP(Headed(), None, ShardingStrategy.SHARD_GRAD_OP,")
    text = migrated(tmp_path, head + FORMS["after an evaluation"][0])
    assert "    if isinstance(module, FSDPModule):\n        module.reshard()\n" in text


WITHOUT_PLACE = {
    "a model that the call computes": (
        "def net():\n    return model\n\n\nFSDP.optim_state_dict(net(), optimizer)\n"
    ),
    "a comprehension": (
        "states = [FSDP.optim_state_dict(m, o) for m, o in [(model, optimizer)]]\n"
    ),
    "a lambda": (
        "def later(take):\n    model(torch.ones(2, 8))\n    return take()\n\n\n"
        "later(lambda: FSDP.optim_state_dict(model, optimizer))\n"
    ),
    "a test of a loop": (
        "while not FSDP.optim_state_dict(model, optimizer):\n    model(torch.ones(2, 8))\n"
    ),
}


@pytest.mark.parametrize("body", list(WITHOUT_PLACE.values()), ids=list(WITHOUT_PLACE))
def test_a_call_without_a_place_before_it(tmp_path: Path, body: str) -> None:
    found, _ = plan(tmp_path, HEAD + STEP + EVALUATION + body)
    assert [one.blocker.code for one in found.blockers] == ["FSDP203-state-while-gathered"]


PLACES = {
    "a test": "if FSDP.optim_state_dict(model, optimizer):\n    pass\n",
    "an elif": (
        "if local_rank:\n    pass\nelif FSDP.optim_state_dict(model, optimizer):\n    pass\n"
    ),
    "one line": "if local_rank: state = FSDP.optim_state_dict(model, optimizer)\n",
    "several statements in a line": "a = 1; state = FSDP.optim_state_dict(model, optimizer)\n",
    "an argument": "torch.save({'optimizer': FSDP.optim_state_dict(model, optimizer)}, 'o.pt')\n",
    "a block with another context": (
        "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT), torch.no_grad():\n"
        "    state = FSDP.optim_state_dict(model, optimizer)\n"
    ),
}


@pytest.mark.parametrize("body", list(PLACES.values()), ids=list(PLACES))
def test_a_call_anywhere_in_a_statement(tmp_path: Path, body: str) -> None:
    text = migrated(tmp_path, HEAD + STEP + EVALUATION + body)
    assert text.count(RESHARD) == 1


PROGRAM = """\
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4), nn.Sequential(nn.Linear(4, 1)))
        self.net = FSDP(
            net, auto_wrap_policy=ModuleWrapPolicy({nn.Sequential}), device_id=torch.device("cpu"),
            sharding_strategy=ShardingStrategy.STRATEGY,
        )
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)

    def step(self, number):
        loss = self.net(torch.full((2, 8), float(number + dist.get_rank()))).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def evaluate(self):
        return self.net(torch.ones(2, 8)).sum().item()

    def take(self):
        return FSDP.full_optim_state_dict(self.net, self.optimizer, rank0_only=False)

    def load(self, state):
        flat = FSDP.shard_full_optim_state_dict(state, self.net, optim=self.optimizer)
        self.optimizer.load_state_dict(flat)


dist.init_process_group("gloo")
trainer = Trainer()
for number in range(3):
    trainer.step(number)
    print(f"{trainer.evaluate():.5f}")
    if number == 0:
        state = copy.deepcopy(trainer.take())
trainer.load(state)
trainer.step(3)
print(f"{trainer.evaluate():.5f}")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP"])
def test_the_states_are_those_of_fsdp1(strategy: str, tmp_path: Path, two_ranks: TwoRanks) -> None:
    before = PROGRAM.replace("STRATEGY", strategy)
    found, after = plan(tmp_path, before, head="")
    assert not found.blockers, [one.reason for one in found.blockers]
    old, new = two_ranks.run(before), two_ranks.run(after)
    assert old.status == new.status == "ok", f"{old.error}\n{new.error}"
    assert new.stdout == old.stdout

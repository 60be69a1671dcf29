"""Functions that get several models, wrapped in different ways."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

OPTIONS = {
    "a dict for each": """
        OPTIONS = {
            "one": {"auto_wrap_policy": POLICY},
            "two": {"auto_wrap_policy": None, "use_orig_params": True},
        }


        def build(name):
            return FSDP(Net(), **OPTIONS[name])
    """,
    "a dict over another": """
        OPTIONS = {
            "*": {"auto_wrap_policy": POLICY, "limit_all_gathers": True},
            "one": {},
            "two": {"auto_wrap_policy": None},
        }


        def build(name):
            options = {**OPTIONS["*"], **OPTIONS[name], "device_id": local_rank}
            return FSDP(Net(), **options)
    """,
    "an updated dict": """
        OPTIONS = {"one": {}, "two": {"auto_wrap_policy": None}}


        def build(name):
            options = {"auto_wrap_policy": POLICY}
            options.update(OPTIONS[name])
            return FSDP(Net(), **options)
    """,
}
POLICIES = ["always_wrap_policy", "size_based_auto_wrap_policy", "ModuleWrapPolicy({Block})"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("options", list(OPTIONS.values()), ids=list(OPTIONS))
def test_a_policy_that_one_model_lacks(tmp_path: Path, options: str, policy: str) -> None:
    body = textwrap.dedent(options).replace("POLICY", policy)
    found, after = plan(tmp_path, body + '\n\none = build("one")\ntwo = build("two")\n')
    if not found.blockers:  # else nothing is rewritten
        assert " is not None:\n" in after or " is None:\n" in after


def test_a_policy_that_is_a_function_in_a_dict(tmp_path: Path) -> None:
    body = textwrap.dedent(OPTIONS["a dict over another"]).replace("POLICY", POLICIES[0])
    found, _ = plan(tmp_path, body + '\n\none = build("one")\ntwo = build("two")\n')
    assert [one.reason for one in found.blockers] == []


def test_a_block_that_gathers_two_models(tmp_path: Path) -> None:
    body = """
        def total(model):
            with FSDP.summon_full_params(model, writeback=False):
                return sum(p.sum() for p in model.parameters())


        one = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
        two = FSDP(Net())
        print(total(one), total(two))
    """
    text = migrated(tmp_path, textwrap.dedent(body))
    assert "for module in model.modules():\n        if isinstance(module, FSDPModule):" in text


IGNORED = """
def build(net):
    return FSDP(net, {argument})


one, two = Net(), Net()
{freeze}
one, two = build(one), build(two)
optimizer = torch.optim.AdamW(one.parameters(), foreach=True)
"""
ARGUMENTS = [
    "ignored_states=list(net.blocks[0].parameters())",
    "ignored_modules=[net.blocks[0]]",
    "ignored_states=[net.blocks[0].linear.weight, net.blocks[0].linear.bias]",
]


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_ignored_parameters_that_one_model_trains(tmp_path: Path, argument: str) -> None:
    freeze = "two.blocks[0].requires_grad_(False)"
    found, _ = plan(tmp_path, IGNORED.format(argument=argument, freeze=freeze))
    assert [one.blocker.code for one in found.blockers] == ["FSDP201-ignored-perhaps-trained"]
    freeze = "for net in (one, two):\n    net.blocks[0].requires_grad_(False)"
    found, _ = plan(tmp_path, IGNORED.format(argument=argument, freeze=freeze))
    assert found.blockers == []


PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import always_wrap_policy

SETTINGS = {
    "*": {"auto_wrap_policy": always_wrap_policy, "limit_all_gathers": True},
    "generator": {"sharding_strategy": ShardingStrategy.FULL_SHARD},
    "critic": {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP, "auto_wrap_policy": None},
}


def make(role):
    net = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 4)))
    settings = {**SETTINGS["*"], **SETTINGS[role], "device_id": torch.device("cpu")}
    net = FSDP(net, **settings)
    return net, torch.optim.SGD(net.parameters(), lr=0.05)


def total(net):
    with FSDP.summon_full_params(net, writeback=False):
        return sum(p.detach().double().sum() for p in net.parameters()).item()


dist.init_process_group("gloo")
torch.manual_seed(0)
generator, one = make("generator")
critic, two = make("critic")
for step in range(3):
    loss = critic(generator(torch.full((2, 4), float(step + dist.get_rank())))).pow(2).mean()
    loss.backward()
    one.step()
    two.step()
    one.zero_grad()
    two.zero_grad()
    print(f"{loss.item():.6f}")
print(f"{total(generator):.6f} {total(critic):.6f}")
dist.destroy_process_group()
"""


def test_the_program_gives_the_same_numbers(tmp_path: Path, two_ranks: TwoRanks) -> None:
    found, after = plan(tmp_path, PROGRAM, head="")
    assert not found.blockers, [one.reason for one in found.blockers]
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == new.status == "ok", f"{old.error}\n{new.error}"
    assert new.stdout == old.stdout

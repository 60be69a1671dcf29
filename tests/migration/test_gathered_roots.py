"""Parameters that a program sets after a forward without a backward."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

AVERAGE = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
device = torch.device("cpu")
model = FSDP(nn.Linear(4, 4), use_orig_params=True, device_id=device)
average = FSDP(nn.Linear(4, 4), use_orig_params=True, device_id=device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(2, 4)).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for p, other in zip(model.parameters(), average.parameters()):
            other.mul_(0.9).add_(p, alpha=0.1)
        line = f"{dist.get_rank()}:{average(torch.ones(2, 4)).sum().item():.5f}"
        print(f" {line} ")
dist.destroy_process_group()
"""


def test_an_average_that_is_evaluated(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(AVERAGE, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert after.count("reshard_after_forward=True") == 1
    before, migrated = (two_ranks.run(text, timeout=600) for text in (AVERAGE, after))
    assert (before.status, migrated.status) == ("ok", "ok"), f"{before}\n{migrated}"
    outputs = [
        {line for line in run.stdout.split() if line.startswith("0:")} for run in (before, migrated)
    ]
    assert [len(found) for found in outputs] == [1, 3]  # FSDP1 computes with the old values


UPDATE = """
    for p, other in zip(model.parameters(), average.parameters()):
        other.mul_(0.9).add_(p, alpha=0.1)
"""
COPY = """
    for name, other in average.module.named_parameters():
        other.data.copy_(dict(model.module.named_parameters())[name])
"""
FORMS = {
    "set through the inner module": (
        "    for step in range(3):\n"
        + textwrap.indent(COPY + "    average(torch.ones(2, 8))\n", "    "),
        True,
    ),
    "set before the forward": (UPDATE + "    average(torch.ones(2, 8))\n", False),
    "set after the forward": ("    average(torch.ones(2, 8))\n" + UPDATE, True),
    "a state between": (
        "    average(torch.ones(2, 8))\n    torch.save(average.state_dict(), 'a.pt')\n" + UPDATE,
        False,
    ),
}


@pytest.mark.parametrize(("block", "reshards"), list(FORMS.values()), ids=list(FORMS))
def test_the_order_decides(block: str, reshards: bool, tmp_path: Path) -> None:
    head = (
        "model = FSDP(Net())\naverage = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))\n"
    )
    text = migrated(tmp_path, f"{head}with torch.no_grad():\n{block.lstrip(chr(10))}")
    assert text.count("reshard_after_forward=True") == reshards


AVERAGED = "with torch.no_grad():\n" + FORMS["set after the forward"][0]


def test_a_root_whose_arguments_are_in_a_dict(tmp_path: Path) -> None:
    body = """
    model = FSDP(Net())
    average = FSDP(
        Net(), auto_wrap_policy=ModuleWrapPolicy({Block}),
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16), cpu_offload=CPUOffload(True),
    )
    """
    text = migrated(tmp_path, textwrap.dedent(body) + AVERAGED)
    assert "fully_shard(average, **fsdp_kwargs, reshard_after_forward=True)" in text


STRATEGIES = {
    "ShardingStrategy.SHARD_GRAD_OP": "model = FSDP(Net())\naverage = FSDP(Net(), {})\n",
    "ShardingStrategy[os.environ['STRATEGY']]": "model = FSDP(Net())\naverage = FSDP(Net(), {})\n",
    "settings": "model = FSDP(Net())\nsettings = dict({})\naverage = FSDP(Net(), **settings)\n",
}


def _wrapped(strategy: str) -> str:
    value = strategy if "." in strategy else "ShardingStrategy.SHARD_GRAD_OP"
    return STRATEGIES[strategy].format(f"sharding_strategy={value}")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_modules_are_sharded_again_after_the_forward(strategy: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, _wrapped(strategy) + AVERAGED)
    assert "reshard_after_forward=True" not in text
    call, _, rest = text.partition("average(torch.ones(2, 8))\n")
    assert call and rest.lstrip().startswith("# The program sets the parameters")
    assert "if isinstance(module, FSDPModule):\n            module.reshard()\n" in rest


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_forward_without_a_place_after_it_blocks(strategy: str, tmp_path: Path) -> None:
    body = AVERAGED.replace("    average(torch", "    values = [average(x) for x in (torch")
    body = body.replace("2, 8))\n", "2, 8),)]\n", 1)
    found, _ = plan(tmp_path, _wrapped(strategy) + body)
    assert [one.blocker.code for one in found.blockers] == ["FSDP201-gathered-parameters-set"]


KEPT = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def evaluate(model):
    with torch.no_grad():
        out = model(torch.ones(2, 4))
    return out.sum().item()


def swap(model, others):
    kept = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for p, other in zip(model.parameters(), others):
            p.copy_(other)
    return kept


dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 4))
model = FSDP(
    net, auto_wrap_policy=ModuleWrapPolicy({nn.Sequential}), device_id=torch.device("cpu"),
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True,
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = [p.detach().clone() for p in model.parameters()]
for step in range(3):
    model(torch.full((2, 4), 1.0 + dist.get_rank())).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
kept = swap(model, average)
print(f"{evaluate(model):.5f}")
swap(model, kept)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
state = model.state_dict()
print(f"{sum(v.double().sum().item() for v in state.values()):.5f}")
dist.destroy_process_group()
"""


def test_weights_that_an_evaluation_swaps(tmp_path: Path, two_ranks: TwoRanks) -> None:
    """FSDP1 computes with the root's old values, so an unsharded model is the reference."""
    path = tmp_path / "train.py"
    path.write_text(KEPT, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    reference = KEPT[: KEPT.index("model = FSDP(")] + KEPT[KEPT.index("optimizer = ") :]
    reference = reference.replace(
        "optimizer = ", "model = nn.parallel.DistributedDataParallel(net)\noptimizer = ", 1
    )
    plain, migrated = (two_ranks.run(text) for text in (reference, after))
    assert (plain.status, migrated.status) == ("ok", "ok"), f"{plain}\n{migrated}"
    assert migrated.stdout == plain.stdout


def test_a_backward_shards_again(tmp_path: Path) -> None:
    body = """
    model = FSDP(Net())
    model(torch.ones(2, 8)).sum().backward()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.9)
    """
    assert "reshard_after_forward" not in migrated(tmp_path, body)

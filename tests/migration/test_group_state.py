"""What FSDP2's groups do otherwise than FSDP1's units: shared weights, and marks on gathered parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_ranks import TwoRanks

from fsdplint.diagnostics.finding import Fix, Safety
from fsdplint.edits.apply import apply
from fsdplint.interpreter import load
from fsdplint.migration.plan import Plan
from fsdplint.migration.planner import plans_of


def plan(tmp_path: Path, text: str) -> tuple[Plan, str]:
    """The plan of a program, and its migrated text ("" where it is blocked)."""
    path = tmp_path / "train.py"
    path.write_text(text, encoding="utf-8")
    program = load([path])
    (found,) = plans_of(program)
    if found.blockers:
        return found, ""
    whole = Fix(
        "", Safety.SAFE, found.edits, found.imports, found.group, found.maybe_unused_imports
    )
    return found, apply(program.sources, [whole]).texts[str(path)]


TIED = """\
import functools
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block, nn.Embedding}), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.ones(2, 8, dtype=torch.long) * (dist.get_rank() + 1)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(step, loss.item(), sum(p.numel() for p in model.parameters()))
dist.destroy_process_group()
"""


def test_weights_shared_by_two_units_block(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, TIED)
    (blocker,) = found.blockers
    assert "different units, which FSDP2 refuses" in blocker.reason
    assert "fully_shard([" in blocker.advice


@pytest.mark.parametrize("classes", ["{Block}", "{Net}"])
def test_weights_shared_within_a_unit_are_migrated(classes: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, TIED.replace("{Block, nn.Embedding}", classes))
    assert not found.blockers


UNKNOWN_POLICIES = [
    "sharding_kit.make_policy()",
    "ModuleWrapPolicy(sharding_kit.LAYERS)",
    "functools.partial(lambda_auto_wrap_policy, lambda_fn=sharding_kit.wraps)",
    "functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: sharding_kit.wraps(m))",
]
KNOWN_POLICIES = [
    "functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, Block))",
    "functools.partial(lambda_auto_wrap_policy, lambda_fn=is_block)",
    "CustomPolicy(is_block)",
]
IS_BLOCK = """\
import sharding_kit
from torch.distributed.fsdp.wrap import CustomPolicy, lambda_auto_wrap_policy


def is_block(module):
    return isinstance(module, Block)


dist.init_process_group"""


def with_policy(policy: str) -> str:
    text = TIED.replace("ModuleWrapPolicy({Block, nn.Embedding})", policy)
    return text.replace("dist.init_process_group", IS_BLOCK)


@pytest.mark.parametrize("policy", UNKNOWN_POLICIES)
def test_weights_shared_under_an_unknown_policy_block(policy: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, with_policy(policy))
    assert [blocker.reason for blocker in found.blockers] == [
        "`Linear` shares its weight with `Embedding`, and the policy may wrap them "
        "in different units, which FSDP2 refuses"
    ]
    found, _ = plan(tmp_path, with_policy(policy).replace("self.head.weight =", "unused ="))
    assert not found.blockers


@pytest.mark.parametrize("policy", KNOWN_POLICIES)
def test_weights_shared_under_a_function_of_the_program(policy: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, with_policy(policy))
    assert not found.blockers
    found, _ = plan(
        tmp_path,
        with_policy(policy)
        .replace("isinstance(module, Block)", "isinstance(module, (Block, nn.Embedding))")
        .replace("isinstance(m, Block)", "isinstance(m, (Block, nn.Embedding))"),
    )
    assert "different units, which FSDP2 refuses" in found.blockers[0].reason


EPOCHS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.encoder(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
model.encoder.requires_grad_(False)
model = FSDP(
    model,
    auto_wrap_policy=ModuleWrapPolicy({nn.Sequential}),
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    use_orig_params=True,
    device_id=torch.device("cpu"),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(2, 8)
for epoch in range(6):
    if epoch == 1:
        for parameter in model.encoder.parameters():
            parameter.requires_grad = True
    model.train()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        model(x)
    if dist.get_rank() == 0:
        print(epoch, loss.item(), [p.requires_grad for p in model.parameters()])
dist.destroy_process_group()
"""
STRATEGY = "    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,\n"
LOOP = """\
    if epoch == 1:
        for module in model.encoder.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        for parameter in model.encoder.parameters():
"""


@pytest.mark.parametrize("part", ["encoder", "head"])
def test_gradients_are_chosen_after_an_evaluation(
    part: str, tmp_path: Path, two_ranks: TwoRanks
) -> None:
    """The head belongs to the root's group, which stays gathered with any strategy."""
    code = EPOCHS
    if part == "head":
        code = code.replace(STRATEGY, "").replace("model.encoder", "model.head")
    found, after = plan(tmp_path, code)
    assert not found.blockers
    assert LOOP in after or part == "head"
    old, new = two_ranks.run(code), two_ranks.run(after)
    assert old.status == new.status == "ok", f"{old}\n{new}"
    assert "1 0.0" in old.stdout and new.stdout == old.stdout


HEAD = EPOCHS[: EPOCHS.index("for epoch in")]
WITHOUT_RESHARD = {
    "before the sharding": EPOCHS[: EPOCHS.index("    if epoch == 1:")]
    + EPOCHS[EPOCHS.index("    model.train()") :],
    "a strategy that reshards": EPOCHS.replace(STRATEGY, ""),
    "after a backward": EPOCHS.replace(
        "    model.eval()\n    with torch.no_grad():\n        model(x)\n", ""
    ),
}


@pytest.mark.parametrize("code", list(WITHOUT_RESHARD.values()), ids=list(WITHOUT_RESHARD))
def test_where_nothing_is_gathered_nothing_is_added(code: str, tmp_path: Path) -> None:
    found, after = plan(tmp_path, code)
    assert not found.blockers
    assert "reshard()" not in after


CHOICE = EPOCHS.replace(
    "dist.init",
    "def unfreeze(part):\n    part.requires_grad_(True)\n\n\ndist.init",
    1,
)
START = CHOICE.index("        for parameter in")
END = CHOICE.index("    model.train()")


def test_a_choice_out_of_reach_of_the_model_blocks(tmp_path: Path) -> None:
    for lines in (
        "        part = model.encoder[0]\n        unfreeze(part)\n",
        "        def later(whole):\n            with torch.no_grad():\n                whole(x)\n"
        "            part = whole.encoder[0]\n            unfreeze(part)\n\n"
        "        later(model)\n",
    ):
        found, _ = plan(tmp_path, CHOICE[:START] + lines + CHOICE[END:])
        (blocker,) = found.blockers
        assert "keeps gathered after an evaluation" in blocker.reason


METHOD = """\

    def unfreeze(self):
        for parameter in self.encoder.parameters():
            parameter.requires_grad = True
"""


def test_a_function_chooses_gradients_after_an_evaluation(
    tmp_path: Path, two_ranks: TwoRanks
) -> None:
    code = CHOICE[:START] + "        unfreeze(model.encoder[0])\n" + CHOICE[END:]
    found, after = plan(tmp_path, code)
    assert not found.blockers
    assert "module.reshard()\n        unfreeze(model.encoder[0])\n" in after
    old, new = two_ranks.run(code), two_ranks.run(after)
    assert old.status == new.status == "ok", f"{old}\n{new}"
    assert "1 0.0" in old.stdout and new.stdout == old.stdout


def test_a_method_in_another_file_chooses_gradients(tmp_path: Path) -> None:
    net, rest = EPOCHS[: EPOCHS.index("dist.init")], EPOCHS[EPOCHS.index("dist.init") :]
    head, net = (
        net[: net.index("class Net")],
        net[net.index("class Net") :].rstrip() + "\n" + METHOD,
    )
    (tmp_path / "net.py").write_text("import torch.nn as nn\n\n\n" + net, encoding="utf-8")
    start, end = rest.index("        for parameter in"), rest.index("    model.train()")
    call = "        model.module.unfreeze()\n"
    path = tmp_path / "train.py"
    path.write_text(
        head + "from net import Net\n\n" + rest[:start] + call + rest[end:], encoding="utf-8"
    )
    program = load([path])
    (found,) = plans_of(program)
    assert not found.blockers
    whole = Fix(
        "", Safety.SAFE, found.edits, found.imports, found.group, found.maybe_unused_imports
    )
    texts = apply(program.sources, [whole]).texts
    assert "module.reshard()\n        model.unfreeze()\n" in texts[str(path)]
    assert set(texts) == {str(path)}

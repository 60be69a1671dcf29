"""`model.apply(fn)` on a wrapped model, for which FSDP1 gathers the parameters of each unit."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import POLICY, migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

MODEL = f"model = FSDP(Net(), {POLICY})\n"
INIT = """
def init(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


"""
GATHERED = {
    "a function": INIT + MODEL + "model.apply(init)\n",
    "a method": """
        class Init:
            def __init__(self, std):
                self.std = std

            def weights(self, module):
                if isinstance(module, nn.Linear):
                    module.weight.data.normal_(0, self.std)


        """ + MODEL + "        model.apply(Init(0.02).weights)\n",
    "the module's own method": f"""
        def reset(module):
            if type(module) in (nn.Linear, nn.LayerNorm):
                module.reset_parameters()


        {MODEL}
        model.apply(reset)
        """,
}  # fmt: skip
BLOCKED = {
    "parameters of parts": """
        def init(module):
            if isinstance(module, Block):
                for p in module.parameters():
                    nn.init.normal_(p)
        """,
    "any class": """
        def init(module):
            if hasattr(module, "weight"):
                nn.init.normal_(module.weight)
        """,
    "frozen parameters": """
        def init(module):
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight)
                module.bias.requires_grad_(False)
        """,
    "other parameters": """
        def init(module):
            if isinstance(module, nn.Linear):
                module.weight = nn.Parameter(torch.randn(8, 8))
        """,
    "a call of the module": """
        def init(module):
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight)
                print(module(torch.ones(8)))
        """,
}


@pytest.mark.parametrize("body", list(GATHERED.values()), ids=list(GATHERED))
def test_a_function_that_writes_the_module_runs_on_whole_parameters(
    body: str, tmp_path: Path
) -> None:
    text = migrated(tmp_path, textwrap.dedent(body))
    assert "with gathered_parameters(model):\n    model.apply(" in text


@pytest.mark.parametrize("body", list(BLOCKED.values()), ids=list(BLOCKED))
def test_what_still_blocks(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, textwrap.dedent(body) + "\n\n" + MODEL + "model.apply(init)\n")
    reasons = [blocker.reason for blocker in found.blockers]
    assert any("before it is sharded" in one for one in reasons), reasons


def test_a_value_of_the_call_blocks(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, INIT + MODEL + "print(model.apply(init))\n")
    assert any("before it is sharded" in one.reason for one in found.blockers)


def test_other_blocks_of_the_file_share_the_context_manager(tmp_path: Path) -> None:
    text = migrated(
        tmp_path,
        INIT
        + MODEL
        + "model.apply(init)\n"
        + "with FSDP.summon_full_params(model, writeback=False):\n    state = model.state_dict()\n",
    )
    assert "with gathered_parameters(model):\n    model.apply(init)\n" in text
    assert "with gathered_parameters(model, writeback=False):\n" in text
    assert text.count("def gathered_parameters(model, writeback=True)") == 1


PROGRAM = '''
import functools
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        return x + self.linear(self.norm(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.blocks = nn.Sequential(*[Block() for _ in range(2)])

    def forward(self, x):
        return self.blocks(self.inner(x))


class Init:
    """Draws the weights from the global generator."""

    def __init__(self, std):
        self.std = std

    def weights(self, module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=self.std)
            module.bias.data.zero_()


def train(strategy, original):
    torch.manual_seed(0)
    model = FSDP(
        Net(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sharding_strategy=strategy,
        device_id=torch.device("cpu"),
        use_orig_params=original,
    )
    torch.manual_seed(7)  # FSDP1 and FSDP2 cut other parts of what each rank draws
    model.apply(Init(0.3).weights)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(3):
        loss = model(torch.randn(4, 6, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total)
        print(f"loss {total.item():.7f}")
    model.apply(Init(0.1).weights)
    total = model(torch.ones(2, 6)).sum()
    print(f"again {total.item():.7f}")


dist.init_process_group("gloo")
train(ShardingStrategy.FULL_SHARD, True)
train(ShardingStrategy.FULL_SHARD, False)
train(ShardingStrategy.SHARD_GRAD_OP, True)
dist.destroy_process_group()
'''


def test_the_losses_are_the_same(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FullyShardedDataParallel" not in after
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert new.stdout == old.stdout and old.stdout.count("loss") == 18

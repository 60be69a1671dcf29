"""Parameters in `ignored_states` that the program trains with an optimizer of its own."""

from __future__ import annotations

from pathlib import Path

from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
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
        self.table = nn.Embedding(4, 8)
        self.shift = nn.Embedding(4, 8)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, i):
        x = self.table(i) + self.shift(i)
        for block in self.blocks:
            x = block(x)
        return x


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Net()
replicated = list(net.table.parameters()) + list(net.shift.parameters())
model = FSDP(
    net,
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    ignored_states=replicated,
    use_orig_params=True,
    device_id=torch.device("cpu"),
)
optimizer = torch.optim.SGD(model.blocks.parameters(), lr=0.1, momentum=0.9)
tables = torch.optim.SGD(replicated, lr=0.1)


def train(steps):
    for step in range(steps):
        generator = torch.Generator().manual_seed(step * 2 + dist.get_rank())
        loss = model(torch.randint(4, (3,), generator=generator)).square().mean()
        loss.backward()
        for p in replicated:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        for one in (optimizer, tables):
            one.step()
            one.zero_grad()
        loss = loss.detach().clone()
        dist.all_reduce(loss)
        print(f"loss {loss.item():.6f}")


train(3)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
    weights = {name: value.clone() for name, value in model.state_dict().items()}
state = FSDP.full_optim_state_dict(model, optimizer)
train(3)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
    model.load_state_dict(weights)
full = state if dist.get_rank() == 0 else None
loaded = FSDP.scatter_full_optim_state_dict(full, model, optim=optimizer)
optimizer.load_state_dict(loaded)
train(3)
dist.destroy_process_group()
"""


def test_the_losses_are_the_same(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert '"ignored_params": set(replicated)' in after
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert sorted(new.stdout.split("\n")) == sorted(old.stdout.split("\n"))


FORM = """
net = Net()
model = FSDP(net, ignored_states=list(net.blocks[0].parameters()), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
model(torch.ones(2, 8)).sum().backward()
{step}
optimizer.step()
"""


def test_an_optimizer_of_both_kinds_steps_singly(tmp_path: Path) -> None:
    text = migrated(tmp_path, FORM.format(step=""))
    assert "torch.optim.AdamW(model.parameters(), lr=0.1, foreach=False)" in text
    assert "ignored_params=set(net.blocks[0].parameters())" in text


def test_clipping_both_kinds_blocks(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, FORM.format(step="model.clip_grad_norm_(1.0)"))
    assert any("ignored_states" in one.reason for one in found.blockers)

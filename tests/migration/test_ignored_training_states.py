"""Parameters in `ignored_states` that the program trains with an optimizer of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
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


VISITED = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.table = nn.Embedding(4, 8)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, i):
        return self.inner(self.table(i)) * self.scale


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Net()
{whole}
model = FSDP(net, {ignored}, use_orig_params=True, device_id=torch.device("cpu"))
dense = torch.optim.SGD(model.module.inner.parameters(), lr=0.1)
others = torch.optim.SGD(whole, lr=0.1)
for step in range(3):
    generator = torch.Generator().manual_seed(step * 2 + dist.get_rank())
    loss = model(torch.randint(4, (3,), generator=generator)).square().mean()
    loss.backward()
    {average}
    for one in (dense, others):
        one.step()
        one.zero_grad()
    loss = loss.detach().clone()
    dist.all_reduce(loss)
    print(f"loss {{loss.item():.6f}}")
dist.destroy_process_group()
"""
AVERAGER = """
class Averager:
    def __init__(self, module):
        self.parameters = [p for p in module.parameters() if p.requires_grad]

    def average(self):
        flat = torch.cat([p.grad.reshape(-1) for p in self.parameters])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        sizes = [p.numel() for p in self.parameters]
        for p, part in zip(self.parameters, flat.split(sizes)):
            p.grad.copy_(part.view_as(p))


"""
LOOP = """for p in whole:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    for p in model.parameters():
        p.requires_grad"""
FORMS = {
    "chosen by their names": (
        'whole = [p for n, p in net.named_parameters() if n in ("scale", "table.weight")]',
        "ignored_states=whole",
        LOOP,
    ),
    "a parameter of the model": (
        "whole = [net.scale, *net.table.parameters()]",
        "ignored_states=whole",
        """for p in net.table.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    scale = net.scale
    dist.all_reduce(scale.grad)
    scale.grad /= dist.get_world_size()""",
    ),
    "an object that holds them": (
        AVERAGER + "whole = list(net.table.parameters()); averager = Averager(net.table)",
        "ignored_modules=[net.table]",
        "averager.average()",
    ),
    "a dict of arguments": (
        AVERAGER + "whole = list(net.table.parameters()); averager = Averager(net.table);"
        ' kwargs = {"ignored_modules": [net.table]}',
        "**kwargs",
        "averager.average()",
    ),
}


@pytest.mark.parametrize("form", list(FORMS.values()), ids=list(FORMS))
def test_gradients_of_ignored_parameters(
    tmp_path: Path, two_ranks: TwoRanks, form: tuple[str, str, str]
) -> None:
    whole, ignored, average = form
    before = VISITED.format(whole=whole, ignored=ignored, average=average)
    path = tmp_path / "train.py"
    path.write_text(before, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FSDP(" not in after
    old, new = two_ranks.run(before), two_ranks.run(after)
    assert old.status == new.status == "ok", f"{old.error}\n{new.error}"
    assert sorted(new.stdout.split("\n")) == sorted(old.stdout.split("\n"))


@pytest.mark.parametrize("calls", [("net.table", "model"), ("model", "net.table")])
def test_gradients_of_ignored_and_sharded_parameters(
    tmp_path: Path, calls: tuple[str, str]
) -> None:
    average = "\n    ".join(f"Averager({one}).average()" for one in calls)
    body = VISITED.format(
        whole=AVERAGER + "whole = list(net.table.parameters())",
        ignored="ignored_modules=[net.table]",
        average=average,
    )
    found, _ = plan(tmp_path, body, head="")
    assert any("this rank's part" in one.reason for one in found.blockers)

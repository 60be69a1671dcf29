"""Generators that yield parameters from a `summon_full_params` block."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

FORM = """\
class Exporter:
    def __init__(self, model):
        self.model = model

    def weights(self):
        with FSDP.summon_full_params(self.model, writeback=False):
            for name, p in self.model.named_parameters():
                yield name.replace("_fsdp_wrapped_module.", ""), p.detach().cpu()


exporter = Exporter(FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block})))
"""
TAKES_ALL = [
    "print({name: weight.sum() for name, weight in exporter.weights()})\n",
    "for name, weight in exporter.weights():\n    print(name, weight.sum())\n",
]


@pytest.mark.parametrize("loop", TAKES_ALL)
def test_each_value_is_gathered_where_all_are_taken(loop: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, FORM + loop)
    assert (
        "    def weights(self):\n"
        "        for module in self.model.modules():\n"
        "            if isinstance(module, FSDPModule):\n"
        "                module.reshard()\n"
        "        for name, p in self.model.named_parameters():\n"
        "            p = p.full_tensor()\n"
        '            yield name.replace("_fsdp_wrapped_module.", ""), p.detach().cpu()\n' in text
    )


@pytest.mark.parametrize(
    "loop",
    [
        "for name, weight in exporter.weights():\n    if dist.get_rank():\n        break\n",
        "print(next(exporter.weights()))\n",
        "engine.load_weights(exporter.weights())\n",
    ],
)
def test_all_are_gathered_where_a_caller_may_stop(loop: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, FORM + loop)
    assert "with gathered_parameters(self.model):\n            for name, p in" in text


def test_a_caller_that_may_write_blocks_one_by_one(tmp_path: Path) -> None:
    found, text = plan(tmp_path, FORM.replace(", writeback=False", "") + TAKES_ALL[1])
    assert found.blockers or "gathered_parameters(" in text


PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(5, 7), nn.Linear(7, 3)

    def forward(self, x):
        return self.down(self.up(x))


def weights(model):
    with FSDP.summon_full_params(model, writeback=False):
        for name, p in model.named_parameters():
            yield name.replace("_fsdp_wrapped_module.", ""), p.detach().clone()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(Net(), device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.ones(2, 5) * dist.get_rank()).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
    print({name: round(weight.sum().item(), 5) for name, weight in weights(model)})
dist.destroy_process_group()
"""


def test_the_values_are_the_same(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "p = p.full_tensor()" in after
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert new.stdout == old.stdout

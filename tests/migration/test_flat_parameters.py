"""Flat parameters that a program takes from FSDP1's handles, element by element."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

IMPORT = "import torch.distributed.fsdp._traversal_utils as traversal_utils\n"
HEAD = IMPORT + "model = FSDP(Net())\naverage = FSDP(Net())\n"

PROGRAM = (
    """
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
"""
    + IMPORT
    + """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


@torch.no_grad()
def update(average, model, decay):
    old_handles = traversal_utils._get_fsdp_handles(average)
    new_handles = traversal_utils._get_fsdp_handles(model)
    assert len(old_handles) == len(new_handles)
    olds, news = [], []
    for old_handle, new_handle in zip(old_handles, new_handles):
        if old_handle.flat_param is not None and new_handle.flat_param.requires_grad:
            olds.append(old_handle.flat_param.data)
            news.append(new_handle.flat_param.data.to(dtype=old_handle.flat_param.dtype))
    torch._foreach_mul_(olds, decay)
    torch._foreach_add_(olds, news, alpha=1 - decay)


dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)))
policy = ModuleWrapPolicy({nn.Sequential})
average = FSDP(copy.deepcopy(net).requires_grad_(False), policy=policy, device_id=torch.device("cpu"))
model = FSDP(net, policy=policy, device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(2, 4)).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    update(average, model, 0.9)
with FSDP.summon_full_params(average):
    total = sum(p.double().abs().sum().item() for p in average.parameters())
if dist.get_rank() == 0:
    print(f"total:{total:.6f}")
dist.destroy_process_group()
"""
).replace("policy=policy", "auto_wrap_policy=policy")


def test_an_average_of_flat_parameters(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "old_parameters = list(average.parameters())" in after
    assert "        if new_parameter.requires_grad:\n" in after
    before, migrated_run = (two_ranks.run(text, timeout=600) for text in (PROGRAM, after))
    assert (before.status, migrated_run.status) == ("ok", "ok"), f"{before}\n{migrated_run}"
    totals = [
        next(line for line in run.stdout.split() if line.startswith("total:"))
        for run in (before, migrated_run)
    ]
    assert totals[0] == totals[1]


FORMS = {
    "a loop over the call": (
        "for handle in traversal_utils._get_fsdp_handles(model):\n"
        "    handle.flat_param.data.mul_(0.5)\n",
        "for parameter in list(model.parameters()):\n    parameter.data.mul_(0.5)\n",
    ),
    "other names": (
        "found = traversal_utils._get_fsdp_handles(model)\nprint(len(found))\n"
        "for one in found:\n    one.flat_param.data.mul_(0.5)\n",
        "found = list(model.parameters())\nprint(len(found))\n"
        "for one in found:\n    one.data.mul_(0.5)\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_the_parameters_stand_for_the_handles(before: str, after: str, tmp_path: Path) -> None:
    assert after in migrated(tmp_path, HEAD + before)


STAYING = {
    "the shape": "for handle in HANDLES:\n    print(handle.flat_param.shape)\n",
    "the handle itself": "for handle in HANDLES:\n    print(handle.uses_sharded_strategy)\n",
    "an index": "print(HANDLES[0].flat_param.data)\n",
    "a view": "for handle in HANDLES:\n    handle.flat_param.data.view(-1).mul_(0.5)\n",
    "a list that is kept": (
        "kept = []\nfor handle in HANDLES:\n    kept.append(handle.flat_param.data)\n"
        "print(torch.cat(kept))\n"
    ),
    "after the loop": (
        "for handle in HANDLES:\n    handle.flat_param.data.mul_(0.5)\nprint(handle.flat_param.data)\n"
    ),
}


@pytest.mark.parametrize("body", list(STAYING.values()), ids=list(STAYING))
def test_what_needs_the_flat_parameter_blocks(body: str, tmp_path: Path) -> None:
    text = body.replace("HANDLES", "traversal_utils._get_fsdp_handles(model)")
    found, _ = plan(tmp_path, HEAD + text)
    assert found.blockers


def test_ignored_parameters_have_no_handle(tmp_path: Path) -> None:
    body = FORMS["a loop over the call"][0]
    head = HEAD.replace("FSDP(Net())", "FSDP(Net(), ignored_modules=[frozen])")
    found, _ = plan(tmp_path, f"frozen = Block().requires_grad_(False)\n{head}{body}")
    assert found.blockers


def test_a_loop_over_trained_parameters_leaves_ignored_ones_out(tmp_path: Path) -> None:
    body = """
    frozen = Block().requires_grad_(False)
    model = FSDP(Net(), ignored_modules=[frozen])
    average = FSDP(Net(), ignored_modules=[frozen])
    olds = traversal_utils._get_fsdp_handles(average)
    for old, new in zip(olds, traversal_utils._get_fsdp_handles(model)):
        if new.flat_param.requires_grad:
            old.flat_param.data.lerp_(new.flat_param.data, 0.5)
    """
    text = migrated(tmp_path, IMPORT + textwrap.dedent(body))
    assert "for old, new in zip(olds, list(model.parameters())):" in text
    assert "        old.data.lerp_(new.data, 0.5)" in text

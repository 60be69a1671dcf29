"""FSDP103 on optimizers that get other parameters after they were built."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Restartable(torch.optim.AdamW):
    def restart(self, parameters):
        self.__init__(parameters)


model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
held = list(model.parameters())
optimizer = torch.optim.AdamW(model.parameters())
restartable = Restartable(model.parameters())
BEFORE
fully_shard(model)
AFTER
model(torch.randn(2, 8)).sum().backward()
optimizer.step()
"""


def lines(tmp_path: Path, after: str, before: str = "") -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(HEAD.replace("BEFORE", before).replace("AFTER", after))
    rule = rule_by_code("FSDP103")
    assert rule is not None
    text = path.read_text().splitlines()
    return [text[f.site.location().line - 1] for f in check(load([path]), [rule()])]


BUILT = "optimizer = torch.optim.AdamW(model.parameters())"
REPLACED = {
    "init": "optimizer.__init__(model.parameters(), lr=0.1)",
    "init of the class": "torch.optim.AdamW.__init__(optimizer, model.parameters())",
    "init of its type": "type(optimizer).__init__(optimizer, model.parameters())",
    "a method of its own": "optimizer = restartable\noptimizer.restart(model.parameters())",
    "state": "optimizer.__setstate__({'param_groups': [{'params': list(model.parameters())}]})",
    "dict": "optimizer.__dict__.update(torch.optim.AdamW(model.parameters()).__dict__)",
    "vars": "vars(optimizer)['param_groups'] = torch.optim.AdamW(model.parameters()).param_groups",
    "attribute": "optimizer.param_groups = [{'params': list(model.parameters())}]",
    "setattr": "setattr(optimizer, 'param_groups', [{'params': list(model.parameters())}])",
    "added": "optimizer.param_groups.clear()\n"
    "optimizer.add_param_group({'params': list(model.parameters())})",
    "deleted": "del optimizer.param_groups[0]\n"
    "optimizer.param_groups += [{'params': list(model.parameters())}]",
    "slice of groups": "optimizer.param_groups[:] = other.param_groups",
    "a group's": "optimizer.param_groups[0]['params'] = list(model.parameters())",
    "each group's": "for i, group in enumerate(optimizer.param_groups):\n"
    "    group['params'] = list(model.parameters())",
    "slice": "optimizer.param_groups[0]['params'][:] = list(model.parameters())",
    "one by one": "for i, parameter in enumerate(model.parameters()):\n"
    "    optimizer.param_groups[0]['params'][i] = parameter",
    "alias": "parameters = optimizer.param_groups[0]['params']\nparameters.clear()\n"
    "parameters.extend(model.parameters())",
    "update": "optimizer.param_groups[0].update(params=list(model.parameters()))",
    "setitem": "optimizer.param_groups[0].__setitem__('params', list(model.parameters()))",
    "unknown code": "tools.rebuild(optimizer.param_groups, model)",
    "in a list": "tools.rebuild([optimizer], model)",
}


@pytest.mark.parametrize("after", REPLACED.values(), ids=REPLACED)
def test_new_parameters_are_updated(tmp_path: Path, after: str) -> None:
    assert lines(tmp_path, after) == []


KEPT = {
    "nothing": "",
    "settings": "for group in optimizer.param_groups:\n    group['lr'] = 0.1\n"
    "    group.update(weight_decay=0.1)\n    group.setdefault('initial_lr', 0.1)",
    "read": "print(optimizer.param_groups[0]['lr'], len(optimizer.param_groups))\n"
    "print(sum(p.numel() for g in optimizer.param_groups for p in g['params']))",
    "a copy of the list": "mine = list(optimizer.param_groups[0]['params'])\nmine.append(None)",
    "state": "optimizer.load_state_dict(optimizer.state_dict())\noptimizer.zero_grad()",
    "hook": "optimizer.register_step_post_hook(lambda *given: None)",
}


@pytest.mark.parametrize("after", KEPT.values(), ids=KEPT)
def test_the_old_parameters_stay(tmp_path: Path, after: str) -> None:
    assert lines(tmp_path, after) == [BUILT]


def test_built_again_over_parameters_that_are_replaced(tmp_path: Path) -> None:
    again = "optimizer.__init__(held, lr=0.1)"
    assert lines(tmp_path, again) == [again]
    assert lines(tmp_path, "", "optimizer.__init__(model.parameters())") == [
        "optimizer.__init__(model.parameters())"
    ]

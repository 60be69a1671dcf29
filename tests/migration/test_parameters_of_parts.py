"""Values computed from the parameters of a part of a wrapped model, which are a rank's part of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import POLICY, plan

MODEL = f"model = FSDP(Net(), {POLICY})\ntotal = torch.zeros(1)\n"
READS = {
    "parameters of a part": (
        "for name, p in model.blocks.named_parameters():\n    total += torch.sum(p**2)\n",
        "`torch.sum(p**2)`",
    ),
    "parameters of a part of the inner module": (
        "for p in list(model.module.blocks[0].parameters()):\n    total += p.pow(2).sum()\n",
        "`p.pow(2).sum()`",
    ),
    "an attribute of an element": (
        "total += model.blocks[0].linear.weight.norm()\n",
        "`model.blocks[0].linear.weight.norm()`",
    ),
    "a variable": (
        "weight = model.blocks[0].linear.weight\ntotal += weight.abs().max()\n",
        "`weight.abs().max()`",
    ),
    "an attribute in a loop over parts": (
        "for block in model.blocks:\n    total += block.linear.weight.norm()\n",
        "`block.linear.weight.norm()`",
    ),
    "a generator": (
        "total += sum(p.norm() for p in model.blocks[1].parameters())\n",
        "`p.norm()`",
    ),
}
KEPT = {
    "before the model is wrapped": (
        "net = Net()\nprint(net.blocks[0].linear.weight.norm())\n"
        "for p in net.blocks.parameters():\n    print(p.sum())\n" + f"model = FSDP(net, {POLICY})\n"
    ),
    "in the forward": (
        "def norm_of(weight):\n    return weight.norm()\n\n\n"
        "class Scaled(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.linear = nn.Linear(8, 8)\n\n"
        "    def forward(self, x):\n"
        "        scale = norm_of(self.linear.weight) * self.linear.bias.norm()\n"
        "        return self.linear(x) / scale\n\n\n"
        "model = FSDP(nn.Sequential(Scaled()), auto_wrap_policy=ModuleWrapPolicy({Scaled}))\n"
        "model(torch.ones(2, 8))\n"
    ),
    "their number": MODEL + "print(sum(p.numel() for p in model.blocks.parameters()))\n",
}


@pytest.mark.parametrize(("body", "code"), list(READS.values()), ids=list(READS))
def test_a_value_of_one_ranks_part_blocks(tmp_path: Path, body: str, code: str) -> None:
    found, _ = plan(tmp_path, MODEL + body)
    (reason,) = [one.reason for one in found.blockers]
    assert reason.startswith(f"{code} reads one rank's part")


@pytest.mark.parametrize("body", list(KEPT.values()), ids=list(KEPT))
def test_other_values_do_not(tmp_path: Path, body: str) -> None:
    found, _ = plan(tmp_path, body)
    assert not any("reads one rank's part" in one.reason for one in found.blockers)

"""FSDP436: parameters that are unfrozen while the optimizer does not have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEAD = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        return self.head(self.body(x))

def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad = flag

model = Model()
fully_shard(model.body)
fully_shard(model)

def turn():
    model(torch.randn(2, 8)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()

"""
FREEZE = "model.body.requires_grad_(False)\n"
FILTERED = "optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad])\n"
EPOCHS = """
for epoch in range(4):
    if epoch == 1:
        {thaw}
    for _ in range(8):
        turn()
"""
THAW = "model.body.requires_grad_(True)"


def _found(folder: Path, body: str) -> list[str]:
    return [one.message for one in findings(program(folder, HEAD + body), "FSDP436")]


@pytest.mark.parametrize(
    "optimizer",
    [
        FILTERED,
        "optimizer = torch.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()))\n",
        "optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=1)\n",
        "params = []\nfor name, p in model.named_parameters():\n    if p.requires_grad:\n"
        "        params.append(p)\noptimizer = torch.optim.AdamW([{'params': params, 'lr': 1}])\n",
        "optimizer = torch.optim.AdamW(model.head.parameters())\n",
        "params = []\nfor p in model.parameters():\n    if not p.requires_grad:\n        continue\n"
        "    params.append(p)\noptimizer = torch.optim.AdamW(params)\n",
        "optimizer = torch.optim.AdamW([\n"
        "    {'params': [p for n, p in model.named_parameters() if p.requires_grad and p.ndim > 1]},\n"
        "    {'params': [p for n, p in model.named_parameters() if p.requires_grad and p.ndim < 2]},\n"
        "])\n",
    ],
)
def test_an_optimizer_of_trainable_parameters(tmp_path: Path, optimizer: str) -> None:
    assert len(_found(tmp_path, FREEZE + optimizer + EPOCHS.format(thaw=THAW))) == 1


@pytest.mark.parametrize(
    ("freeze", "thaw"),
    [
        ("set_trainable(model.body, False)\n", "set_trainable(model.body, True)"),
        ("model.body.requires_grad_(False)\n", "model.requires_grad_(True)"),
        (FREEZE, "for layer in model.body: layer.requires_grad_()"),
        ("for p in model.body.parameters():\n    p.requires_grad_(False)\n", THAW),
    ],
)
def test_forms_of_freezing(tmp_path: Path, freeze: str, thaw: str) -> None:
    assert len(_found(tmp_path, freeze + FILTERED + EPOCHS.format(thaw=thaw))) == 1


def test_stages_one_after_another(tmp_path: Path) -> None:
    stages = f"for _ in range(8):\n    turn()\n{THAW}\nfor _ in range(8):\n    turn()\n"
    assert len(_found(tmp_path, FREEZE + FILTERED + stages)) == 1


@pytest.mark.parametrize(
    "body",
    [
        FREEZE + "optimizer = torch.optim.SGD(model.parameters())\n" + EPOCHS.format(thaw=THAW),
        FILTERED + FREEZE + EPOCHS.format(thaw=THAW),
        FREEZE
        + FILTERED
        + EPOCHS.format(
            thaw=f"{THAW}; optimizer.add_param_group({{'params': model.body.parameters()}})"
        ),
        FREEZE + FILTERED + EPOCHS.format(thaw=f"{THAW}; {FILTERED}"),
        FREEZE
        + FILTERED
        + EPOCHS.format(
            thaw=f"{THAW}; optimizer.param_groups[0]['params'] = list(model.parameters())"
        ),
        FREEZE
        + FILTERED
        + THAW
        + "\nmodel.body.requires_grad_(False)\n"
        + EPOCHS.format(thaw="pass"),
        FREEZE
        + FILTERED
        + "second = torch.optim.SGD(model.body.parameters())\n"
        + EPOCHS.format(thaw=THAW),
        FREEZE + FILTERED + EPOCHS.format(thaw="pass"),
        "from tools import freeze\nfreeze(model)\n" + FILTERED + EPOCHS.format(thaw=THAW),
        "from tools import rebuild\n"
        + FREEZE
        + FILTERED
        + EPOCHS.format(thaw=f"{THAW}; rebuild(optimizer, model)"),
        FREEZE + FILTERED + EPOCHS.format(thaw="model.head.requires_grad_(True)"),
        FREEZE
        + "params = [p for p in model.parameters()]\noptimizer = torch.optim.SGD(params)\n"
        + EPOCHS.format(thaw=THAW),
    ],
)
def test_parameters_that_an_optimizer_has(tmp_path: Path, body: str) -> None:
    assert _found(tmp_path, body) == []

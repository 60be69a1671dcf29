"""FSDP709 without a run: parameters that the tests of a program keep out of all groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from interpreter.programs import findings, program

HEADER = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * self.gain


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.linear = nn.Linear(size, size)
        self.scale = Scale(size)

    def forward(self, x):
        return self.scale(self.linear(self.norm(x)))


class Net(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.embed = nn.Embedding(size, size)
        self.blocks = nn.ModuleList([Block(size) for _ in range(4)])
        self.head = nn.Linear(size, size, bias=False)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


NO_DECAY = ("bias", "norm.weight")
model = Net()
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
"""
TRAINING = """
for step in range(4):
    optimizer.zero_grad()
    model(torch.randint(8, (2, 4))).sum().backward()
    optimizer.step()
"""
GROUPS = """
optimizer = torch.optim.AdamW([{"params": decay}, {"params": rest, "weight_decay": 0.0}])
"""


def messages(tmp_path: Path, groups: str, after: str = "") -> list[str]:
    found = program(tmp_path, groups + GROUPS + TRAINING + after, header=HEADER)
    return [one.message.split(" of `")[0] for one in findings(found, "FSDP709")]


GAINS = ["parameter `blocks.*.scale.gain`"]
MISSED = {
    "dimensions and end": """
decay = [p for p in model.parameters() if p.ndim >= 2]
rest = [p for n, p in model.named_parameters() if n.endswith(("bias", "norm.weight"))]
""",
    "loop": """
decay, rest = [], []
for name, p in model.named_parameters():
    if not p.requires_grad:
        continue
    if p.dim() > 1:
        decay.append(p)
    elif any(text in name for text in NO_DECAY):
        rest.append(p)
""",
    "three lists": """
decay, rest, others = [], [], []
for name, p in model.named_parameters():
    bucket = decay if p.ndim > 1 else rest if name.endswith("bias") else others
    bucket.append(p)
rest += [p for n, p in model.named_parameters() if n.endswith("norm.weight")]
""",
    "len of shape": """
decay = [p for p in model.parameters() if len(p.shape) == 2]
rest = [p for n, p in model.named_parameters() if "bias" in n or "norm" in n]
""",
    "function": """
def split(model, texts):
    decay = [p for n, p in model.named_parameters() if p.requires_grad and p.ndim > 1]
    rest = [p for n, p in model.named_parameters() if any(n.endswith(t) for t in texts)]
    return decay, rest

decay, rest = split(model, NO_DECAY)
""",
}


@pytest.mark.parametrize("groups", MISSED.values(), ids=MISSED)
def test_tests_leave_parameters_out(tmp_path: Path, groups: str) -> None:
    assert messages(tmp_path, groups) == GAINS


COVERED = {
    "complement": """
decay = [p for n, p in model.named_parameters() if not any(t in n for t in NO_DECAY)]
rest = [p for n, p in model.named_parameters() if any(t in n for t in NO_DECAY)]
""",
    "else": """
decay, rest = [], []
for name, p in model.named_parameters():
    if p.ndim > 1 and "embed" not in name:
        decay.append(p)
    else:
        rest.append(p)
""",
    "chosen list": """
decay, rest = [], []
for name, p in model.named_parameters():
    (decay if p.ndim > 1 else rest).append(p)
""",
    "three lists": """
decay, rest, others = [], [], []
for name, p in model.named_parameters():
    bucket = decay if p.ndim > 1 else rest if "bias" in name else others
    bucket.append(p)
rest += others
""",
    "part of the model": """
decay = [p for n, p in model.named_parameters() if "blocks" not in n]
rest = list(model.blocks.parameters())
""",
    "unknown test": """
decay = [p for p in model.parameters() if p.ndim > 1]
rest = [p for n, p in model.named_parameters() if is_rest(n)]
""",
    "one group": """
decay = [p for n, p in model.named_parameters() if "gain" not in n]
rest = []
""",
    "frozen": """
for block in model.blocks:
    block.scale.requires_grad_(False)
decay = [p for p in model.parameters() if p.ndim > 1]
rest = [p for n, p in model.named_parameters() if n.endswith(("bias", "norm.weight"))]
""",
    "a third list": """
decay = [p for p in model.parameters() if p.ndim > 1]
rest = [p for n, p in model.named_parameters() if n.endswith(("bias", "norm.weight"))]
rest += [block.scale.gain for block in model.blocks]
""",
    "a list that grows": """
decay = [p for p in model.parameters() if p.ndim > 1]
rest = [p for n, p in model.named_parameters() if n.endswith(("bias", "norm.weight"))]
for block in model.blocks:
    rest.append(block.scale.gain)
""",
    "number in the name": """
decay = [p for n, p in model.named_parameters() if "blocks.0" not in n]
rest = [p for n, p in model.named_parameters() if "blocks.1" in n]
""",
    "most of the model": """
decay = [p for n, p in model.named_parameters() if "head" in n]
rest = [p for n, p in model.named_parameters() if n.endswith("linear.bias")]
""",
    "name is changed": """
decay = [p for p in model.parameters() if p.ndim > 1]
rest = []
for name, p in model.named_parameters():
    name = name.replace("gain", "bias")
    if name.endswith(("bias", "norm.weight")):
        rest.append(p)
""",
}


@pytest.mark.parametrize("groups", COVERED.values(), ids=COVERED)
def test_no_parameter_is_certainly_left_out(tmp_path: Path, groups: str) -> None:
    assert messages(tmp_path, groups) == []


SPLIT = MISSED["dimensions and end"]
UPDATED = {
    "data": "block.scale.gain.data.add_(block.scale.gain.grad, alpha=-0.1)",
    "in place": "block.scale.gain.sub_(block.scale.gain.grad)",
    "copied": "block.scale.gain.copy_(block.scale.gain - block.scale.gain.grad)",
}


@pytest.mark.parametrize("update", UPDATED.values(), ids=UPDATED)
def test_the_program_updates_them_itself(tmp_path: Path, update: str) -> None:
    by_hand = (
        f"    with torch.no_grad():\n        for block in model.blocks:\n            {update}\n"
    )
    assert messages(tmp_path, SPLIT, by_hand) == []


def test_another_optimizer(tmp_path: Path) -> None:
    second = "gains = [p for n, p in model.named_parameters() if 'gain' in n]\n"
    second += "other = torch.optim.SGD(gains)\n"
    assert messages(tmp_path, SPLIT + second) == []


def test_a_group_is_added(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        SPLIT
        + GROUPS
        + "for block in model.blocks:\n"
        + "    optimizer.add_param_group({'params': block.scale.gain})\n"
        + TRAINING,
        header=HEADER,
    )
    assert findings(found, "FSDP709") == []


def test_tied_weights_have_one_of_two_names(tmp_path: Path) -> None:
    groups = """
decay = [p for n, p in model.named_parameters() if p.ndim > 1 and "embed" not in n]
rest = [p for p in model.parameters() if p.ndim < 2]
"""
    assert messages(tmp_path, groups) == ["parameter `embed.weight`"]
    tied = "model.embed.weight = model.head.weight\n"
    assert messages(tmp_path, tied + groups) == []


@pytest.mark.parametrize(
    ("test", "missed"), [("p.ndim >= 2", True), ("p.ndim < 2", False), ("p.ndim == 0", False)]
)
def test_a_scalar_has_no_dimensions(test: str, missed: bool, tmp_path: Path) -> None:
    """`fully_shard` refuses a scalar, so it is ignored."""
    header = HEADER.replace("torch.ones(size)", "torch.ones(())").replace(
        "fully_shard(block)\n", "fully_shard(block, ignored_params={block.scale.gain})\n"
    )
    header = header.replace(
        "fully_shard(model)",
        "fully_shard(model, ignored_params={b.scale.gain for b in model.blocks})",
    )
    groups = f"""
decay = [p for p in model.parameters() if {test}]
rest = [p for n, p in model.named_parameters() if n.endswith("bias")]
"""
    found = program(tmp_path, groups + GROUPS + TRAINING, header=header)
    said = [one.message for one in findings(found, "FSDP709")]
    assert any("scale.gain" in one for one in said) == missed, said

"""Whether a loop certainly visits all parameters of a module, however the program gets them."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

FREEZES = """\
dist.init_process_group("gloo")
teacher = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
{freeze}
fully_shard(teacher[0])
fully_shard(teacher, reshard_after_forward=False)
with torch.no_grad():
    teacher(torch.ones(2, 8))
"""

ALL = [
    "for p in teacher.parameters():\n    p.requires_grad = False",
    "ps = teacher.parameters()\nfor p in ps:\n    p.requires_grad = False",
    "ps = list(teacher.parameters())\nfor p in ps:\n    p.requires_grad = False",
    "for p in iter(teacher.parameters()):\n    p.requires_grad = False",
    "for p in [q for q in teacher.parameters()]:\n    p.requires_grad = False",
    "for n, p in list(teacher.named_parameters()):\n    p.requires_grad = False",
    "for i, p in enumerate(teacher.parameters()):\n    p.requires_grad = False",
    "def of(m):\n    return m.parameters()\nfor p in of(teacher):\n    p.requires_grad = False",
    "def freeze(ps):\n    for p in ps:\n        p.requires_grad_(False)\nfreeze(teacher.parameters())",
    "def of(m):\n    yield from m.parameters()\nfor p in of(teacher):\n    p.requires_grad = False",
    "get = teacher.parameters\nfor p in get():\n    p.requires_grad = False",
    "ps = (q for q in teacher.parameters())\nfor p in ps:\n    p.requires_grad = False",
]
SOME = [
    "ps = teacher.parameters()\nnext(ps)\nfor p in ps:\n    p.requires_grad = False",
    "for p in list(teacher.parameters())[1:]:\n    p.requires_grad = False",
    "import itertools\nfor p in itertools.islice(teacher.parameters(), 2):\n    p.requires_grad = False",
    "for p in [q for q in teacher.parameters() if q.ndim > 1]:\n    p.requires_grad = False",
    "for p in filter(lambda q: q.ndim > 1, teacher.parameters()):\n    p.requires_grad = False",
    "next(teacher.parameters()).requires_grad = False",
    "for p in teacher.parameters(recurse=False):\n    p.requires_grad = False",
    "ps = []\nfor q in teacher.parameters():\n    if q.ndim > 1:\n        ps.append(q)\n"
    "for p in ps:\n    p.requires_grad = False",
    "list(teacher.parameters())[0].requires_grad = False",
]  # fmt: skip


@pytest.mark.parametrize("freeze", ALL)
def test_a_loop_over_all_parameters_freezes_the_module(tmp_path: Path, freeze: str) -> None:
    assert findings(program(tmp_path, FREEZES.format(freeze=freeze)), "FSDP602")


@pytest.mark.parametrize("freeze", SOME)
def test_a_loop_over_some_parameters_does_not(tmp_path: Path, freeze: str) -> None:
    assert not findings(program(tmp_path, FREEZES.format(freeze=freeze)), "FSDP602")


def test_zip_with_unknown_numbers_keeps_the_parameters(tmp_path: Path) -> None:
    train = "for p, scale in zip(teacher.parameters(), scales()):\n    p.requires_grad = False"
    before = "from lib import scales\n" + FREEZES.format(freeze=train)
    assert not findings(program(tmp_path, before), "FSDP602")  # `zip` may end early


GROUPS = {
    "an error after branches that leave the turn": """
        if p.ndim > 1:
            decayed.append(p)
            continue
        if p.ndim <= 1:
            others.append(p)
            continue
        raise ValueError("of no group")
""",
    "an error in the last branch": """
        if p.ndim > 1:
            decayed.append(p)
        elif p.ndim <= 1:
            others.append(p)
        else:
            raise ValueError("of no group")
""",
    "an assertion after branches that leave the turn": """
        if p.ndim > 1:
            decayed.append(p)
            continue
        if p.ndim <= 1:
            others.append(p)
            continue
        assert False, "of no group"
""",
}
TRAIN = """
def groups(model):
    decayed, others = [], []
    for p in model.parameters():{body}
    return [{{"params": decayed}}, {{"params": others, "weight_decay": 0.0}}]

model = Net()
optimizer = torch.optim.AdamW(groups(model))
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
for _ in range(3):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("body", GROUPS.values(), ids=GROUPS)
def test_a_failing_check_in_a_turn_ends_no_function(tmp_path: Path, body: str) -> None:
    assert findings(program(tmp_path, TRAIN.format(body=body)), "FSDP103")

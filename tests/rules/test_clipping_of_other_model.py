"""FSDP420: which model the clipping between a backward pass and a step gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_refused_parameters import found

PROGRAM = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body(x))

teacher, student = Net(), Net()
{freeze}
for model in (teacher, student):
    fully_shard(model)
optimizer = torch.optim.AdamW(student.parameters())

def update(loss, net):
    loss.backward()
    {clip}
    optimizer.step()
    optimizer.zero_grad()

for x in torch.randn(4, 2, 8):
    with torch.no_grad():
        y = teacher(x)
    update((student(x) - y).square().mean(), {given})
"""
FREEZE = "teacher.requires_grad_(False)"
CLIP = "nn.utils.clip_grad_norm_(net.parameters(), 1.0)"


def messages(
    folder: Path, clip: str = CLIP, freeze: str = FREEZE, given: str = "teacher"
) -> list[str]:
    return found(folder, "FSDP420", PROGRAM.format(clip=clip, freeze=freeze, given=given))


@pytest.mark.parametrize(
    ("clip", "freeze"),
    [
        (CLIP, FREEZE),
        (CLIP, "pass"),
        (CLIP, "for p in teacher.parameters():\n    p.requires_grad = False"),
        ("nn.utils.clip_grad_value_(net.parameters(), 0.5)", FREEZE),
        ("nn.utils.clip_grad_norm_([p for p in net.parameters()], max_norm=1.0)", FREEZE),
        ("nn.utils.clip_grad_norm_(net.body.parameters(), 1.0)", FREEZE),
    ],
)
def test_the_teacher(tmp_path: Path, clip: str, freeze: str) -> None:
    assert len(messages(tmp_path, clip, freeze)) == 1


@pytest.mark.parametrize(
    ("clip", "freeze"),
    [
        (CLIP.replace("net", "student"), FREEZE),
        ("nn.utils.clip_grad_norm_(net.parameters(), float('inf'))", FREEZE),
        (CLIP + "\n    nn.utils.clip_grad_norm_(student.parameters(), 1.0)", FREEZE),
        (CLIP, "student.body = teacher.body"),
        (CLIP, "other = torch.optim.SGD(teacher.parameters(), lr=0.1)"),
        (CLIP, "from library import register\nregister(teacher)"),
        (CLIP, "teacher(torch.randn(2, 8)).sum().backward()"),
    ],
)
def test_programs_that_may_be_right(tmp_path: Path, clip: str, freeze: str) -> None:
    assert messages(tmp_path, clip, freeze) == []


def test_the_student(tmp_path: Path) -> None:
    assert messages(tmp_path, given="student") == []


PAIR = """\
class Part:
    def __init__(self, net, params):
        self.net, self.opt = net, torch.optim.Adam(params, lr=0.1)

    def update(self, loss):
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.opt.step()
        self.opt.zero_grad()

gen = fully_shard(nn.Linear(8, 8))
disc = fully_shard(nn.Linear(8, 1))
one = Part(gen, gen.parameters())
two = Part(disc, {given})
{more}
for x in torch.randn(4, 2, 8):
    two.update(disc(gen(x).detach()).mean())
    one.update(-disc(gen(x)).mean())
"""


@pytest.mark.parametrize(
    "given", ["gen.parameters()", "list(gen.parameters())", "one.net.parameters()"]
)
def test_two_optimizers_for_one_model(tmp_path: Path, given: str) -> None:
    assert len(found(tmp_path, "FSDP420", PAIR.format(given=given, more=""))) == 1


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ("disc.parameters()", ""),
        ("gen.parameters()", "third = torch.optim.Adam(disc.parameters())"),
        ("gen.parameters()", "two.opt = torch.optim.Adam(disc.parameters())"),
        ("gen.parameters()", "from library import train\ntrain(disc)"),
        ("gen.parameters()", "disc.weight.data.zero_()"),
        ("[*gen.parameters(), *disc.parameters()]", ""),
    ],
)
def test_two_optimizers_that_may_be_right(tmp_path: Path, given: str, more: str) -> None:
    assert found(tmp_path, "FSDP420", PAIR.format(given=given, more=more)) == []

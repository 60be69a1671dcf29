"""Models of which FSDP1 wraps only parts: the other trained parameters are plain tensors in FSDP2."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import HEAD, migrated, plan

NET = """
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 2)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.head(self.backbone(x)) * self.scale


"""
MODEL = NET + "model = Two().cuda()\nmodel.backbone = FSDP(model.backbone, use_orig_params=True)\n"
LOOP = """
for _ in range(3):
    model(torch.randn(2, 8)).square().mean().backward()
    optimizer.step()
"""
SINGLY = {
    "all parameters": "torch.optim.AdamW(model.parameters(), lr=0.1)",
    "trained parameters": "torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)",
    "one group of two": (
        "torch.optim.AdamW([{'params': model.parameters()}, {'params': []}], lr=0.1)"
    ),
}
AS_BEFORE = {
    "the wrapped part": "torch.optim.AdamW(model.backbone.parameters(), lr=0.1)",
    "groups of one kind": (
        "torch.optim.AdamW([{'params': model.backbone.parameters()}, "
        "{'params': model.head.parameters(), 'lr': 0.2}], lr=0.1)"
    ),
    "one by one": "torch.optim.AdamW(model.parameters(), lr=0.1, foreach=False)",
}
BLOCKED = {
    "lists of parameters": (
        "optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)\n" + LOOP,
        "updates lists",
    ),
    "a fused optimizer": (
        "optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)\n" + LOOP,
        "updates lists",
    ),
    "clipping": (
        "optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
        + LOOP.replace("    optimizer", "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer"),
        "clips parameters",
    ),
    "a scaler": (
        "scaler = torch.amp.GradScaler()\noptimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
        "for _ in range(3):\n    scaler.scale(model(torch.randn(2, 8)).mean()).backward()\n"
        "    scaler.step(optimizer)\n    scaler.update()\n",
        "scaler steps",
    ),
}  # fmt: skip


@pytest.mark.parametrize("made", list(SINGLY.values()), ids=list(SINGLY))
def test_an_optimizer_of_both_kinds_steps_singly(made: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, MODEL + f"optimizer = {made}\n" + LOOP)
    assert f"optimizer = {made[:-1]}, foreach=False)\n" in text


@pytest.mark.parametrize("made", list(AS_BEFORE.values()), ids=list(AS_BEFORE))
def test_other_optimizers_stay(made: str, tmp_path: Path) -> None:
    assert f"optimizer = {made}\n" in migrated(tmp_path, MODEL + f"optimizer = {made}\n" + LOOP)


def test_an_optimizer_on_the_cpu_stays(tmp_path: Path) -> None:
    body = MODEL + "optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n" + LOOP

    head = HEAD.replace('"nccl"', '"gloo"').replace("torch.cuda.set_device(local_rank)\n", "")
    body = body.replace(".cuda()", "").replace(
        "use_orig", "device_id=torch.device('cpu'), use_orig"
    )
    found, text = plan(tmp_path, body, head=head)
    assert not found.blockers and "foreach" not in text


def test_frozen_parts_do_not_count(tmp_path: Path) -> None:
    body = MODEL + "model.head.requires_grad_(False)\nmodel.scale.requires_grad_(False)\n"
    body += "optimizer = torch.optim.AdamW(model.backbone.parameters(), lr=0.1)\n" + LOOP
    body += "    nn.utils.clip_grad_norm_(model.backbone.parameters(), 1.0)\n"
    assert "foreach" not in migrated(tmp_path, body)


@pytest.mark.parametrize(("body", "reason"), list(BLOCKED.values()), ids=list(BLOCKED))
def test_what_blocks(body: str, reason: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, MODEL + body)
    assert any(reason in blocker.reason for blocker in found.blockers), found.blockers


REDUCED = NET + """
def main():
    model = Two().cuda()
    model.backbone = FSDP(model.backbone, use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(2, 8)).square().mean().backward()
        {reduce}
        optimizer.step()


main()
"""  # fmt: skip
REDUCE = {
    "a part": "for p in model.head.parameters():\n            dist.all_reduce(p.grad)",
    "a parameter": "dist.all_reduce(model.scale.grad)",
}


@pytest.mark.parametrize("reduce", list(REDUCE.values()), ids=list(REDUCE))
def test_gradients_outside_of_the_wrapped_parts_are_whole(reduce: str, tmp_path: Path) -> None:
    assert reduce in migrated(tmp_path, REDUCED.format(reduce=reduce))


def test_gradients_of_the_wrapped_part_are_not(tmp_path: Path) -> None:
    reduce = "for p in model.backbone.parameters():\n            dist.all_reduce(p.grad)"
    found, _ = plan(tmp_path, REDUCED.format(reduce=reduce))
    assert any("this rank's part" in one.reason for one in found.blockers)

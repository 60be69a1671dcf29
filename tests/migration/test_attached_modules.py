"""Modules that a program puts into a model after FSDP1 has wrapped it."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan

PROGRAM = """
model = FSDP(Net(), use_orig_params=True)
model.head = {head}
optimizer = torch.optim.AdamW(model.parameters(), {options})
for _ in range(3):
    model(torch.ones(2, 8)).sum().backward()
    {clip}
    optimizer.step()
"""
CLIP = "model.clip_grad_norm_(1.0)"
BLOCKING = {
    "clipping": ("nn.Linear(8, 8)", "lr=0.1", CLIP),
    "clipping of torch": (
        "nn.Linear(8, 8)",
        "lr=0.1",
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    ),
    "code out of sight has the model": (
        "nn.Linear(8, 8)",
        "lr=0.1",
        "__import__('watcher').watch(model)\n    model.clip_grad_norm_(1.0)",
    ),
    "a scaler": ("nn.Linear(8, 8)", "lr=0.1", 'torch.amp.GradScaler("cuda").step(optimizer)'),
    "a fused optimizer": ("nn.Linear(8, 8)", "lr=0.1, fused=True", "pass"),
}


@pytest.mark.parametrize(("head", "options", "clip"), list(BLOCKING.values()), ids=list(BLOCKING))
def test_a_trained_module_blocks(head: str, options: str, clip: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, PROGRAM.format(head=head, options=options, clip=clip))
    assert [one.code for one in found.blockers] == ["FSDP201-attached-afterwards"]


FINE = {
    "a frozen module": ("nn.Linear(8, 8).requires_grad_(False)", "lr=0.1", CLIP),
    "a module without parameters": ("nn.ReLU()", "lr=0.1", CLIP),
    "no clipping": ("nn.Linear(8, 8)", "lr=0.1", "pass"),
}


@pytest.mark.parametrize(("head", "options", "clip"), list(FINE.values()), ids=list(FINE))
def test_others_do_not_block(head: str, options: str, clip: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, PROGRAM.format(head=head, options=options, clip=clip))
    assert "model = fully_shard(Net())" in text


def test_a_setting_that_freezes_the_module_blocks(tmp_path: Path) -> None:
    body = PROGRAM.format(head="nn.Linear(8, 8)", options="lr=0.1", clip=CLIP).replace(
        "optimizer =",
        'if os.environ.get("FROZEN", "1") == "1":\n    model.head.requires_grad_(False)\noptimizer =',
    )
    found, _ = plan(tmp_path, body)
    assert [one.code for one in found.blockers] == ["FSDP201-attached-afterwards"]

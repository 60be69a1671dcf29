"""Refusals of a migration with several new errors: the report names one that has no fix."""

from __future__ import annotations

from pathlib import Path

from command import run

PROGRAM = """\
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))

    def forward(self, x):
        return self.layers(x)


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
offload = CPUOffload(offload_params=True)
model = FSDP(Net(), device_id=torch.cuda.current_device(), cpu_offload=offload)
model.layers = FSDP(model.layers, device_id=torch.cuda.current_device(), cpu_offload=offload)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(2, 8, device="cuda")).sum().backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_error_without_a_fix_is_named(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM, encoding="utf-8")
    output = " ".join(run("migrate", file).output.split())
    assert "sharded after `Net`, which contains it" in output
    assert "no CPU backend" not in output

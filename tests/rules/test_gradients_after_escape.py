"""Gradients of a model that code out of sight got before the backward pass (FSDP405)."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

LINES = """\
import torch
import torch.distributed as dist
from library import make_model, make_optimizer, use
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = make_model()
fully_shard(model)
optimizer = make_optimizer(model)
use(model)
model(torch.ones(2, 4)).loss.backward(){here}
gradients = [p.grad.to_local() for p in model.parameters() if p.grad is not None]
norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
torch._foreach_mul_(gradients, torch.clamp(1.0 / (norm + 1e-6), max=1.0))
optimizer.step()
"""


@pytest.mark.parametrize(("here", "number"), [("", 1), ("\nuse(model)", 0)])
def test_own_norm(tmp_path: Path, here: str, number: int) -> None:
    found = program(tmp_path, LINES.format(here=here), header="")
    assert len(findings(found, "FSDP405")) == number

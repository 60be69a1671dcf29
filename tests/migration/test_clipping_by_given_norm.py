"""`clip_grads_with_norm_`, which gets the norm of a rank's part in FSDP1, and that of all ranks in FSDP2."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import plan, refusals

PROGRAM = """
@torch.no_grad()
def clip(parameters, bound):
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads)
    torch.nn.utils.clip_grads_with_norm_(parameters, bound, norm)
    return norm


model = FSDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.randn(4, 8)).sum().backward()
    clip(GIVEN, 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("given", ["list(model.parameters())", "model.parameters()"])
def test_the_program_clips_after_the_migration(given: str, tmp_path: Path) -> None:
    assert refusals(tmp_path, PROGRAM.replace("GIVEN", given)) == set()


def test_the_larger_norm_is_noted(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, PROGRAM.replace("GIVEN", "list(model.parameters())"))
    assert any(
        note.text.startswith(
            "torch.nn.utils.clip_grads_with_norm_ clips by the norm over all ranks"
        )
        for note in found.notes
    )


def test_an_offloaded_model_gets_a_group_with_a_cpu_backend(tmp_path: Path) -> None:
    """FSDP2 reduces the norm of gradients on the CPU over the ranks."""
    body = PROGRAM.replace("GIVEN", "list(model.parameters())")
    offloaded = body.replace("FSDP(Net())", "FSDP(Net(), cpu_offload=CPUOffload(True))")
    both = 'dist.init_process_group("cpu:gloo,cuda:nccl")'
    assert both in plan(tmp_path, offloaded)[1]
    assert both not in plan(tmp_path, body)[1]

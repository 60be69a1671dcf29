"""Changes of parameters in a block of `summon_full_params` that does not write them back."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import program

from fsdplint.trace import Fsdp1Used

PROGRAM = """
import copy
shadow = {{}}
model = FSDP(nn.Linear(4, 4))
average = nn.Linear(4, 4)
with FSDP.summon_full_params(model, writeback=False), torch.no_grad():
    {body}
"""


def lost(tmp_path: Path, body: str) -> bool:
    trace = program(tmp_path, PROGRAM.format(body=body)).traces[0]
    (use,) = [one for one in trace.of(Fsdp1Used) if one.api == "summon_full_params"]
    return use.edits_lost


@pytest.mark.parametrize(
    "body",
    [
        "for p in model.parameters(): p.mul_(0.5)",
        "for p in model.parameters(): p.data.mul_(0.5)",
        "for n, p in model.named_parameters(): p.copy_(torch.renorm(p, 2, 0, 1.0))",
        "for n, p in model.named_parameters(): p.mul_(0.5) if p.ndim == 2 else None",
        "[p.clamp_(-1, 1) for p in model.parameters() if p.requires_grad]",
        "for m in model.modules(): isinstance(m, nn.Linear) and m.weight.mul_(0.5)",
        "model.module.weight.mul_(0.5)",
    ],
)
def test_the_parameters_themselves(tmp_path: Path, body: str) -> None:
    assert lost(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        "for p in [q.clone() for q in model.parameters()]: p.mul_(0.5)",
        "for p in list(map(torch.clone, model.parameters())): p.mul_(0.5)",
        "for p in copy.deepcopy(list(model.parameters())): p.mul_(0.5)",
        "for p in (q.cpu() for q in model.parameters()): p.mul_(0.5)",
        "for p in model.parameters(): q = p.detach() * 2; q.mul_(0.5)",
        "for p in model.parameters(): q = p.float(); q.mul_(0.5)",
        "for p in model.parameters(): q = p.to(torch.float64); q.mul_(0.5)",
        "q = copy.deepcopy(model.module.weight); q.mul_(0.5)",
        "q = torch.clone(model.module.weight); q.mul_(0.5)",
        "for n, p in model.named_parameters(): shadow[n].mul_(0.5).add_(p)",
        "for e, p in zip(average.parameters(), model.parameters()): e.lerp_(p, 0.5)",
    ],
)
def test_copies_and_other_tensors(tmp_path: Path, body: str) -> None:
    assert not lost(tmp_path, body)

"""Code that asks whether a model has a method of FSDP1's wrapper."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

ASKED = "isinstance(model, FSDPModule)"
QUESTIONS = {
    'if hasattr(model, "clip_grad_norm_"):': f"if {ASKED}:",
    'if not hasattr(model, "clip_grad_norm_"):': f"if not {ASKED}:",
    'if hasattr(model, "summon_full_params") and local_rank:': f"if {ASKED} and local_rank:",
    'if hasattr(model, "norm"):': 'if hasattr(model, "norm"):',
}


@pytest.mark.parametrize(("before", "after"), list(QUESTIONS.items()), ids=list(QUESTIONS))
def test_the_class_is_asked_for(tmp_path: Path, before: str, after: str) -> None:
    text = migrated(tmp_path, f"model = FSDP(Net())\n{before}\n    print(1)\n")
    assert after in text


OTHERS = {
    "another model": (
        "def ask(model):\n    return hasattr(model, 'clip_grad_norm_')\n\n\n"
        "FSDP(Net())\nask(Net())\n",
        "hasattr(model, 'clip_grad_norm_')",
    ),
    "a class with such a method": (
        """
        class Own(nn.Module):
            def clip_grad_norm_(self, bound):
                return bound


        model = FSDP(Net()) if local_rank is not None else Own()
        if hasattr(model, "clip_grad_norm_"):
            print(1)
        """,
        'if isinstance(model, FSDPModule) or hasattr(model, "clip_grad_norm_"):',
    ),
}


@pytest.mark.parametrize(("body", "expected"), list(OTHERS.values()), ids=list(OTHERS))
def test_other_objects_keep_the_question(tmp_path: Path, body: str, expected: str) -> None:
    assert expected in migrated(tmp_path, textwrap.dedent(body))


PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def clip(model, bound):
    if hasattr(model, "clip_grad_norm_"):
        return model.clip_grad_norm_(bound)
    return torch.nn.utils.clip_grad_norm_(model.parameters(), bound)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Linear(8, 4), device_id=torch.device("cpu"))
model(torch.full((2, 8), 1.0 + dist.get_rank())).pow(2).sum().backward()
print(f"{clip(model, 1.0):.4f}")
dist.destroy_process_group()
"""


def test_the_norm_is_that_of_fsdp1(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == new.status == "ok", f"{old.error}\n{new.error}"
    assert new.stdout == old.stdout

"""Weights that modules share, and policies by size."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import plan

PROGRAM = """
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(16, 8)
        self.middle = nn.Linear(8, 8)
        self.head = nn.Linear(8, 16, bias=False)
        {tie}

    def forward(self, x):
        return self.head(self.middle(self.words(x)))

policy = {policy}
model = FSDP(Words(), auto_wrap_policy=policy)
model(torch.arange(4)).sum().backward()
"""
TIE = "self.head.weight = self.words.weight"
SIZE = "functools.partial(size_based_auto_wrap_policy, min_num_params=70)"
CLASSES = "ModuleWrapPolicy({nn.Embedding, nn.Linear})"
KEPT = "        outer = (other for other in model.modules() if other not in inside)\n"


def test_a_policy_by_size_leaves_a_shared_weight_together(tmp_path: Path) -> None:
    found, text = plan(tmp_path, PROGRAM.format(tie=TIE, policy=SIZE))
    assert not found.blockers, [one.reason for one in found.blockers]
    assert KEPT in text
    assert [note.unsafe for note in found.notes if "share a weight" in note.text] == [True]


def test_without_a_shared_weight_nothing_is_left_out(tmp_path: Path) -> None:
    found, text = plan(tmp_path, PROGRAM.format(tie="pass", policy=SIZE))
    assert not found.blockers
    assert KEPT not in text
    assert not any(note.unsafe for note in found.notes)


@pytest.mark.parametrize("policy", [CLASSES, f"{SIZE} if os.environ.get('BY_SIZE') else {CLASSES}"])
def test_units_of_classes_that_share_a_weight_block(tmp_path: Path, policy: str) -> None:
    found, _ = plan(tmp_path, PROGRAM.format(tie=TIE, policy=policy))
    assert {one.blocker.code for one in found.blockers} & {
        "FSDP201-weights-tied-in-units",
        "FSDP201-weights-perhaps-tied-in-units",
    }

"""Objects that `broadcast_object_list` sends to all ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Loaded, StateLoaded

HEAD = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
first = dist.get_rank() == 0
model = nn.Linear(4, 4)
fully_shard(model)
"""
FORMS = {
    "a branch": (
        'if first:\n    saved = torch.load("a")\nelse:\n    saved = None\nsaved = [saved]\n'
        "dist.broadcast_object_list(saved, src=0)\nsaved = saved[0]\nmodel.load_state_dict(saved)\n"
    ),
    "an item": (
        'box = [None]\nif first:\n    box[0] = torch.load("a")\ndist.broadcast_object_list(box)\n'
        "model.load_state_dict(box[0])\n"
    ),
    "unpacked": (
        'box = [torch.load("a") if first else None, 3]\ndist.broadcast_object_list(box, 0)\n'
        'saved, step = box\nmodel.load_state_dict(saved["model"])\n'
    ),
    "in a dict": (
        'box = [{"weights": torch.load("a") if first else None}]\n'
        'dist.broadcast_object_list(box, 0)\nmodel.load_state_dict(box[0]["weights"])\n'
    ),
}


@pytest.mark.parametrize("body", FORMS.values(), ids=FORMS)
def test_a_state_that_is_sent_is_another_one(body: str, tmp_path: Path) -> None:
    found = program(tmp_path, body, header=HEAD)
    (read,) = events(found, Loaded)
    (set_,) = events(found, StateLoaded)
    assert set_.state is not None and set_.state != read.state

"""Programs in which each rank trains on batches of its own."""

from __future__ import annotations

import textwrap
from pathlib import Path

from programs import program

from fsdplint.trace.queries.own_data import own_data_tests, undecided_collectives

HEAD = """\
import math
import time
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
model = nn.Linear(4, 1)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))
"""
TURN = """\
for step, (x, y) in enumerate(loader):
    loss = nn.functional.mse_loss(model(x), y)
"""


def undecided(folder: Path, body: str) -> list[str]:
    """The tests that keep some ranks from a collective, in order and each once."""
    found = program(folder, textwrap.dedent(body), header=HEAD)
    events = [event for trace in found.traces for event in undecided_collectives(trace)]
    return list(dict.fromkeys(own_data_tests(event)[-1].text for event in events))

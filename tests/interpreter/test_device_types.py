"""The type and the index of a `torch.device`, which conditions test."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import Sharded

CHOSEN = """
import os
import sys

if sys.argv[1] == "cuda":
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
else:
    device = torch.device("cpu")
options = {"backend": "nccl"}
if TEST:
    options["device_id"] = device
dist.init_process_group(**options)
fully_shard(Net())
"""


@pytest.mark.parametrize(
    ("test", "wrong"),
    [
        ('device.type == "cuda"', False),
        ('device.type != "cpu"', False),
        ("device.index is not None", False),
        ('device.type == "cpu"', True),
    ],
)
def test_a_device_is_given_where_its_type_allows_it(test: str, wrong: bool, tmp_path: Path) -> None:
    found = program(tmp_path, CHOSEN.replace("TEST", test))
    assert bool(findings(found, "FSDP513")) is wrong


DEVICES = {
    'torch.device("cuda")': True,
    'torch.device("cuda:0")': True,
    'torch.device(type="cuda", index=0)': True,
    'torch.device(f"cuda:{dist.get_rank()}")': True,
    'torch.device("cpu")': False,
    "torch.device(input())": None,
}


@pytest.mark.parametrize("device", DEVICES)
def test_a_test_of_the_type_is_decided_where_the_type_is_known(device: str, tmp_path: Path) -> None:
    body = f"device = {device}\nif device.type == 'cuda':\n    fully_shard(Net())\n"
    found = program(tmp_path, body)
    guarded = [event.guards for event in events(found, Sharded)]
    assert bool(guarded) is (DEVICES[device] is not False)
    assert any(guarded) is (DEVICES[device] is None)

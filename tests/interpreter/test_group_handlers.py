"""The default process group: handlers that destroy it, and what its backend shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import Collective, Ranks

HANDLERS = {
    "signal": "import signal\nsignal.signal(signal.SIGINT, lambda *_: dist.destroy_process_group())",
    "atexit": "import atexit\natexit.register(dist.destroy_process_group)",
    "atexit of a function": "import atexit\ndef leave():\n    dist.destroy_process_group()\natexit.register(leave)",
}
REST = """
def is_main():
    if not dist.is_initialized():
        return True
    return dist.get_rank() == 0

model = FSDP(Net())
if is_main():
    dist.barrier()
"""


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_the_group_exists(tmp_path: Path, handler: str) -> None:
    found = program(tmp_path, f"dist.init_process_group()\n{handler}\n{REST}")
    barriers = [event for event in events(found, Collective) if event.api == "barrier"]
    assert {event.ranks for event in barriers} == {Ranks.ONE}


AFTER_GROUP = """
dist.init_process_group({backend!r})
model = Net()
if torch.cuda.is_available():
    fully_shard(model.cuda())
else:
    fully_shard(model, reshard_after_forward=False)
dist.broadcast(torch.tensor(1, device="cuda" if torch.cuda.is_available() else "cpu"), src=0)
"""


@pytest.mark.parametrize(("backend", "configurations"), [("nccl", 1), ("cpu:gloo,cuda:nccl", 2)])
def test_a_program_with_nccl_has_a_gpu(tmp_path: Path, backend: str, configurations: int) -> None:
    found = program(tmp_path, AFTER_GROUP.format(backend=backend))
    assert len(found.traces) == configurations
    assert not findings(found, "FSDP508")

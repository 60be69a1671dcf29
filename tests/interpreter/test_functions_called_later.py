"""Functions that a library calls later or never: handlers of signals, and of the program's end."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import Collective, OptimizerStepped

REGISTERED = {
    "method": "stop = Stop()\nsignal.signal(signal.SIGTERM, stop.handle)",
    "each of several": (
        "stop = Stop()\nfor one in (signal.SIGTERM, signal.SIGUSR1):\n"
        "    signal.signal(one, stop.handle)"
    ),
    "closure": (
        "stop = Stop()\ndef handle(number, frame):\n    stop.requested = True\n"
        "signal.signal(signal.SIGTERM, handle)"
    ),
    "event loop": "stop = Stop()\nloop.add_signal_handler(signal.SIGTERM, stop.handle)",
    "atexit": "stop = Stop()\natexit.register(stop.handle)",
}
TRAINING = """
import argparse, atexit, asyncio, signal

class Stop:
    def __init__(self):
        self.requested = False

    def handle(self, *args):
        self.requested = True

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
args = parser.parse_args()
loop = asyncio.get_event_loop()
dist.init_process_group("gloo")
model = Net()
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters())
{registered}
for step in range(args.steps):
    model(torch.ones(1, 4)).sum().backward()
    if stop.requested:
        dist.barrier()
        break
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("registered", REGISTERED.values(), ids=REGISTERED)
def test_what_they_assign_may_be_so_or_not(tmp_path: Path, registered: str) -> None:
    found = program(tmp_path, TRAINING.format(registered=registered))
    assert list(events(found, OptimizerStepped))
    assert [event.api for event in events(found, Collective)].count("barrier")
    assert not findings(found, "FSDP501")


def test_a_function_called_at_once_has_assigned(tmp_path: Path) -> None:
    called = "stop = Stop()\nstop.handle()"
    found = program(tmp_path, TRAINING.format(registered=called))
    assert not list(events(found, OptimizerStepped))

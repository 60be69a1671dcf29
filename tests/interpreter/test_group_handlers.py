"""A handler that destroys the process group has not run where the program tests the group."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

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

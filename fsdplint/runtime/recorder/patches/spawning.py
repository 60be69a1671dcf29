"""Runs programs that start their ranks with torch.multiprocessing.spawn.

Under a launcher, each rank has a process already, which runs the function for its rank instead of
starting more. The ranks meet at the launcher's address, not at the program's fixed port.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from fsdplint.runtime.recorder import patching
from fsdplint.runtime.recorder.recording import current

_RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT")


def install() -> None:
    import torch.distributed as dist
    import torch.multiprocessing as multiprocessing

    spawn: Any = vars(multiprocessing)["spawn"]
    init = dist.init_process_group

    @functools.wraps(spawn)
    def run_in_place(fn: Any, args: Any = (), nprocs: int = 1, *rest: Any, **kwargs: Any) -> Any:
        recording = current()
        local = os.environ.get("LOCAL_RANK"), os.environ.get("LOCAL_WORLD_SIZE")
        if not recording.recorder.listening() or None in local or int(local[1] or 0) != nprocs:
            return spawn(fn, args, nprocs, *rest, **kwargs)
        recording.rendezvous.update(
            {name: os.environ[name] for name in _RENDEZVOUS if name in os.environ}
        )
        fn(int(local[0] or 0), *args)
        return _FinishedProcesses()

    @functools.wraps(init)
    def init_process_group(
        backend: Any = None, init_method: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        recording = current()
        if recording.rendezvous:
            os.environ.update(recording.rendezvous)
            init_method = None
        return init(backend, init_method, *args, **kwargs)

    patching.replace(spawn, run_in_place)
    patching.replace(init, init_process_group)
    patching.apply_replacements()


class _FinishedProcesses:
    """The result of `spawn(..., join=False)`: the function has returned already."""

    def join(self, *args: Any, **kwargs: Any) -> bool:
        return True

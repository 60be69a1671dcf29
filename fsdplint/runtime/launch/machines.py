"""Several machines: the same command on each of them, with a folder that all of them see.

Every node runs its ranks of every program, waits for the records of all ranks, and comes to the
same verdict by itself; so nothing has to be agreed upon but where to meet.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from fsdplint.runtime.launch.records import read_records

# Seconds to wait for the records of other nodes when the own ranks have ended.
_PATIENCE = 60.0


@dataclass(frozen=True)
class Nodes:
    """Which node this is, and where they meet (torchrun's options of the same names).

    endpoint: host and port of the rendezvous, "node0:29400".
    """

    count: int = 1
    rank: int = 0
    endpoint: str = ""
    job: str = "fsdplint"

    @property
    def suffix(self) -> str:
        """What tells this node's files from those of the others in the shared folder."""
        return self.suffix_of(self.rank)

    def suffix_of(self, rank: int) -> str:
        """That of any node."""
        return f"-node{rank}" if self.count > 1 else ""

    def suffixes(self) -> list[str]:
        """Those of all nodes."""
        return [self.suffix_of(rank) for rank in range(self.count)]

    def torchrun(self, run: str) -> list[str]:
        """The options for torchrun; every run has a rendezvous of its own."""
        if self.count == 1:
            return ["--standalone"]
        return [
            *("--nnodes", str(self.count), "--node-rank", str(self.rank)),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", self.endpoint),
            *("--rdzv-id", f"{self.job}-{run.replace(' ', '-')}"),
        ]

    def gather(self, record: Path, ranks: int) -> None:
        """Wait until all ranks of all nodes have written how they ended, or it takes too long."""
        if self.count == 1:
            return
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            ended = [one for one in read_records(record) if one.end is not None]
            if len(ended) >= ranks * self.count:
                return
            time.sleep(0.2)

"""Several machines, which run the same command with a shared folder.

Every node runs its ranks of every program, waits for the records of all ranks, and computes the
same verdict by itself. The nodes share only the folder and the rendezvous.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from fsdplint.runtime.launch.records import read_records

# Seconds to wait for the records of other nodes after the own ranks have ended.
_PATIENCE = 60.0


@dataclass(frozen=True)
class Nodes:
    """The number of this node and the rendezvous (torchrun's options of the same names).

    endpoint: host and port of the rendezvous, "node0:29400".
    """

    count: int = 1
    rank: int = 0
    endpoint: str = ""
    job: str = "fsdplint"

    @property
    def suffix(self) -> str:
        """The suffix of this node's files in the shared folder."""
        return self.suffix_of(self.rank)

    def suffix_of(self, rank: int) -> str:
        """The suffix of a node's files."""
        return f"-node{rank}" if self.count > 1 else ""

    def suffixes(self) -> list[str]:
        """The suffixes of all nodes."""
        return [self.suffix_of(rank) for rank in range(self.count)]

    def torchrun(self, run: str) -> list[str]:
        """The options for torchrun; every run has its own rendezvous."""
        if self.count == 1:
            return ["--standalone"]
        return [
            *("--nnodes", str(self.count), "--node-rank", str(self.rank)),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", self.endpoint),
            *("--rdzv-id", f"{self.job}-{run.replace(' ', '-')}"),
        ]

    def gather(self, record: Path, ranks: int) -> None:
        """Wait, with a time limit, until all ranks of all nodes have completed their records."""
        if self.count == 1:
            return
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            ended = [one for one in read_records(record) if one.end is not None]
            if len(ended) >= ranks * self.count:
                return
            time.sleep(0.2)
